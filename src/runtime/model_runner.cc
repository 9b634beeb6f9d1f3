#include "runtime/model_runner.h"

#include <algorithm>

#include "config/engine_config.h"
#include "kernels/kv_layout.h"

namespace millrace {

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(std::unique_ptr<Model> model,
                                                         std::unique_ptr<ThreadTeam> team,
                                                         const RunnerOptions& options) {
  const ModelConfig& config = model->config();
  const CacheLayout layout =
      cache_layout(config, options.cache_types, static_cast<int>(options.block_size));
  std::unique_ptr<ModelRunner> runner(new ModelRunner);
  auto memory = Buffer::allocate(static_cast<size_t>(layout.block_bytes() * options.num_blocks));
  if (!memory) return fail_in("KV cache", memory.error());
  runner->cache_memory_ = std::move(*memory);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    std::byte* pool = runner->cache_memory_.data();
    if (layout.mla) {
      runner->mla_cache_.push_back(mla_layer_view(*layout.mla, layer, pool, options.num_blocks));
    } else {
      runner->cache_.push_back(kv_layer_view(layout.gqa, layer, pool));
    }
  }
  runner->model_ = std::move(model);
  runner->team_ = std::move(team);
  runner->options_ = options;
  return runner;
}

void ModelRunner::fill_memory(std::byte value) {
  for (Buffer* memory : {&cache_memory_, &activations_, &scratch_}) {
    std::fill_n(memory->data(), memory->size(), value);
  }
}

Result<> ModelRunner::check(const StepInput& input) const {
  int64_t num_tokens = 0;
  for (const SequenceInput& sequence : input.sequences) {
    const auto query_len = static_cast<int64_t>(sequence.token_ids.size());
    num_tokens += query_len;
    const int64_t end = sequence.num_computed + query_len;
    const int64_t room = static_cast<int64_t>(sequence.block_table.size()) * options_.block_size;
    if (query_len < 1 || sequence.num_computed < 0) {
      return fail("step: a sequence with {} tokens after {}; at least one token is needed",
                  query_len, sequence.num_computed);
    }
    if (room < end) {
      return fail("step: block table of {} positions for a sequence of {}", room, end);
    }
    for (int32_t block : sequence.block_table) {
      if (block < 0 || block >= options_.num_blocks) {
        return fail("step: block {} is outside the pool of {}", block, options_.num_blocks);
      }
    }
    for (int32_t id : sequence.token_ids) {
      if (id < 0 || id >= vocab_size()) {
        return fail("token id {} is outside the vocabulary of {}", id, vocab_size());
      }
    }
  }
  if (num_tokens > options_.max_num_batched_tokens) {
    return fail("step of {} tokens; at most {} fit (max_num_batched_tokens)", num_tokens,
                options_.max_num_batched_tokens);
  }
  if (static_cast<int64_t>(input.sequences.size()) > options_.max_num_seqs) {
    return fail("step of {} sequences; at most {} fit (max_num_seqs)", input.sequences.size(),
                options_.max_num_seqs);
  }
  return {};
}

namespace {

// How many tokens of a sequence's chunk, the last ones, need logits.
int32_t num_wanted(const SequenceInput& sequence) {
  switch (sequence.logits) {
    case LogitsRows::kNone:
      return 0;
    case LogitsRows::kLast:
      return 1;
    case LogitsRows::kAll:
      return static_cast<int32_t>(sequence.token_ids.size());
  }
  return 0;
}

}  // namespace

void ModelRunner::lay_out_batch(const StepInput& input) {
  token_ids_.clear();
  positions_.clear();
  slot_mapping_.clear();
  logits_rows_.clear();
  sequences_.clear();
  logits_sequences_.clear();
  for (const SequenceInput& sequence : input.sequences) {
    const auto query_start = static_cast<int64_t>(token_ids_.size());
    const auto query_len = static_cast<int32_t>(sequence.token_ids.size());
    sequences_.push_back({.query_start = query_start,
                          .query_len = query_len,
                          .num_computed = sequence.num_computed,
                          .block_table = sequence.block_table.data()});
    const int32_t first_wanted = query_len - num_wanted(sequence);
    if (first_wanted < query_len) {
      logits_sequences_.push_back({.query_start = static_cast<int64_t>(logits_rows_.size()),
                                   .query_len = query_len - first_wanted,
                                   .num_computed = sequence.num_computed + first_wanted,
                                   .block_table = sequence.block_table.data()});
    }
    for (int32_t i = 0; i < query_len; ++i) {
      const int64_t position = sequence.num_computed + i;
      const int64_t block =
          sequence.block_table[static_cast<size_t>(position / options_.block_size)];
      token_ids_.push_back(sequence.token_ids[static_cast<size_t>(i)]);
      positions_.push_back(static_cast<int32_t>(position));
      slot_mapping_.push_back(block * options_.block_size + position % options_.block_size);
      if (i >= first_wanted) logits_rows_.push_back(static_cast<int32_t>(query_start) + i);
    }
  }
  batch_ = {.num_tokens = static_cast<int64_t>(token_ids_.size()),
            .tokens = TokenLayout::replicated(static_cast<int64_t>(token_ids_.size())),
            .token_ids = token_ids_.data(),
            .positions = positions_.data(),
            .slot_mapping = slot_mapping_.data(),
            .sequences = sequences_,
            .logits_rows = logits_rows_.data(),
            .num_logits = static_cast<int64_t>(logits_rows_.size()),
            // They are gathered, so they are nobody's shard.
            .logits_tokens = TokenLayout::replicated(static_cast<int64_t>(logits_rows_.size())),
            .logits_sequences = logits_sequences_};
}

Result<StepLogits> ModelRunner::forward(const StepInput& input) {
  if (input.sequences.empty()) return StepLogits{.vocab_size = vocab_size()};
  MR_TRY(check(input));
  lay_out_batch(input);
  const ModelConfig& config = model_->config();
  float* dump = nullptr;
  hidden_.clear();
  if (capture_hidden_) {
    hidden_.resize(static_cast<size_t>(config.num_layers * batch_.num_tokens * config.hidden_size));
    dump = hidden_.data();
  }
  int32_t* topk_dump = nullptr;
  topk_.clear();
  if (capture_topk_ && config.indexer) {
    topk_.resize(static_cast<size_t>(config.num_layers * batch_.num_tokens) *
                 static_cast<size_t>(config.indexer->topk));
    topk_dump = topk_.data();
  }
  // A step larger than any before is recorded twice: the first time the arena only counts.
  const float* logits = nullptr;
  for (bool recorded = false; !recorded;) {
    program_.clear();
    Arena arena(activations_.data(), static_cast<int64_t>(activations_.size()));
    MR_ASSIGN(logits, model_->record({.program = program_,
                                      .arena = arena,
                                      .batch = batch_,
                                      .cache = cache_,
                                      .mla_cache = mla_cache_,
                                      .hidden_dump = dump,
                                      .topk_dump = topk_dump}));
    recorded = arena.fits();
    if (!recorded) {
      MR_ASSIGN(activations_, Buffer::allocate(static_cast<size_t>(arena.peak())));
    }
  }
  const int64_t stride = (program_.scratch_bytes() + 4095) / 4096 * 4096;
  if (stride * team_->size() > static_cast<int64_t>(scratch_.size())) {
    MR_ASSIGN(scratch_, Buffer::allocate(static_cast<size_t>(stride * team_->size())));
  }
  program_.run(*team_, scratch_.data(), stride);
  return StepLogits{.rows = logits, .num_rows = batch_.num_logits, .vocab_size = vocab_size()};
}

}  // namespace millrace
