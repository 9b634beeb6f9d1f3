#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "base/check.h"
#include "kernels/sampling.h"

namespace millrace {

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
  }
  return "";
}

Result<int64_t> resolve_max_length(int64_t num_prompt_tokens, std::optional<int64_t> max_tokens,
                                   const EngineOptions& options) {
  if (num_prompt_tokens < 1) return fail("the prompt has no tokens, expected at least one");
  if (num_prompt_tokens >= options.max_model_len) {
    return fail(
        "the prompt has {} tokens and the context holds {}, prompt and answer together: shorten "
        "the prompt or raise --max-model-len, if the model goes further",
        num_prompt_tokens, options.max_model_len);
  }
  const int64_t room = options.max_model_len - num_prompt_tokens;
  const int64_t wanted = num_prompt_tokens + std::min(max_tokens.value_or(room), room);
  // The last token is never read again, so it is not cached.
  const int64_t pool_length = options.num_blocks * options.block_size + 1;
  const int64_t least = max_tokens ? wanted : num_prompt_tokens + 1;
  if (least > pool_length) {
    const int64_t needed = (least - 1 + options.block_size - 1) / options.block_size;
    return fail(
        "the request needs {} cache blocks of {} tokens ({} tokens of prompt, {} of answer) and "
        "the pool has {}: ask for less, or give the cache more memory",
        needed, options.block_size, num_prompt_tokens, least - num_prompt_tokens,
        options.num_blocks);
  }
  return std::min(wanted, pool_length);
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options,
                                               ForwardRunner& runner) {
  if (options.max_model_len < 2) {
    return fail("max_model_len is {}, expected at least 2: one token in, one out",
                options.max_model_len);
  }
  const auto check = [](std::string_view name, int64_t value, int64_t least) -> Result<> {
    if (value >= least) return {};
    return fail("{} is {}, expected at least {}", name, value, least);
  };
  MR_TRY(check("num_blocks", options.num_blocks, 1));
  MR_TRY(check("block_size", options.block_size, 1));
  MR_TRY(check("max_num_seqs", options.limits.max_num_seqs, 1));
  MR_TRY(check("max_num_batched_tokens", options.limits.max_num_batched_tokens, 1));
  MR_TRY(check("max_chunk", options.limits.max_chunk, 0));
  return std::unique_ptr<Engine>(new Engine(options, runner));
}

Engine::Engine(const EngineOptions& options, ForwardRunner& runner)
    : options_(options),
      runner_(runner),
      pool_(options.num_blocks, options.block_size),
      scheduler_(options.limits) {
  scratch_.kernel.isa = options.isa;
}

Result<RequestId> Engine::add_request(Request request) {
  const int64_t vocab_size = runner_.vocab_size();
  MR_TRY(validate(request.params, vocab_size));
  const auto& prompt = request.prompt_token_ids;
  MR_ASSIGN(const int64_t max_length, resolve_max_length(static_cast<int64_t>(prompt.size()),
                                                         request.params.max_tokens, options_));
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= vocab_size) {
      return fail("token {} of the prompt is {}, the vocabulary has 0 to {}", i, prompt[i],
                  vocab_size - 1);
    }
  }
  uint64_t seed = 0;
  if (request.params.seed) {
    seed = *request.params.seed;
  } else {
    std::random_device device;
    seed = (static_cast<uint64_t>(device()) << 32) | device();
  }
  const RequestId id = next_request_++;
  for (int sample = 0; sample < request.params.n; ++sample) {
    add_sample(id, sample, request, seed, max_length);
  }
  return id;
}

void Engine::add_sample(RequestId id, int sample_index, const Request& request, uint64_t seed,
                        int64_t max_length) {
  SequenceSampler sampler(sampler_settings(request.params, options_.eos_token_ids, seed,
                                           static_cast<uint32_t>(sample_index)),
                          request.prompt_token_ids);
  auto sequence = std::make_unique<Sequence>(pool_, std::move(sampler));
  sequence->request_id = id;
  sequence->sample_index = sample_index;
  sequence->arrival = next_arrival_++;
  sequence->token_ids = request.prompt_token_ids;
  sequence->num_prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  sequence->max_length = max_length;
  sequence->min_tokens = request.params.min_tokens;
  if (request.make_text) sequence->text = request.make_text();
  scheduler_.add(sequence.get());
  sequences_.emplace(sequence->arrival, std::move(sequence));
}

void Engine::abort(RequestId request_id) {
  std::vector<Sequence*> aborted;
  for (const auto& [arrival, sequence] : sequences_) {
    if (sequence->request_id == request_id) aborted.push_back(sequence.get());
  }
  for (Sequence* sequence : aborted) {
    SequenceOutput output;
    output.request_id = request_id;
    output.sample_index = sequence->sample_index;
    if (sequence->text) sequence->text->finish(output.text);
    output.finish_reason = FinishReason::kAbort;
    pending_.push_back(std::move(output));
    erase(sequence);
  }
}

void Engine::erase(Sequence* sequence) {
  scheduler_.remove(sequence);
  sequences_.erase(sequence->arrival);
}

namespace {

// A row without a finite largest logit has no likeliest token: sampling from it would make one up.
Result<> check_logits(const StepLogits& logits) {
  for (int64_t i = 0; i < logits.num_rows; ++i) {
    const std::span<const float> row = logits.row(i);
    if (std::isfinite(row[static_cast<size_t>(argmax(row))])) continue;
    return fail(
        "the model's logits are not finite numbers: its weights are damaged, or values "
        "overflow (try --dtype float32)");
  }
  return {};
}

}  // namespace

Result<StepOutput> Engine::step() {
  StepOutput out;
  out.outputs = std::exchange(pending_, {});
  const Schedule schedule = scheduler_.schedule();
  out.num_preempted = schedule.num_preempted;
  if (schedule.sequences.empty()) return out;

  StepInput input;
  for (const Sequence* sequence : schedule.sequences) {
    const int64_t end = sequence->num_computed + sequence->num_scheduled;
    SequenceInput& chunk = input.sequences.emplace_back();
    chunk.token_ids = std::span(sequence->token_ids)
                          .subspan(static_cast<size_t>(sequence->num_computed),
                                   static_cast<size_t>(sequence->num_scheduled));
    chunk.num_computed = sequence->num_computed;
    chunk.block_table = sequence->blocks.blocks();
    chunk.logits = end == sequence->length() ? LogitsRows::kLast : LogitsRows::kNone;
  }
  const Result<StepLogits> logits = runner_.forward(input);
  const Result<> usable = logits ? check_logits(*logits) : std::unexpected(logits.error());
  if (!usable) {
    pending_ = std::move(out.outputs);
    return std::unexpected(usable.error());
  }

  int64_t row = 0;
  for (Sequence* sequence : schedule.sequences) {
    const bool decode =
        sequence->num_scheduled == 1 && sequence->num_computed >= sequence->num_prompt_tokens;
    (decode ? out.num_decode_tokens : out.num_prefill_tokens) += sequence->num_scheduled;
    sequence->num_computed += sequence->num_scheduled;
    if (sequence->num_remaining() > 0) continue;
    MR_CHECK(row < logits->num_rows, "the runner gave {} rows of logits", logits->num_rows);
    out.outputs.push_back(advance(*sequence, logits->row(row++)));
    if (out.outputs.back().finish_reason) erase(sequence);
  }
  return out;
}

// Samples the next token of a sequence from the logits of its last, and decides whether it ends.
SequenceOutput Engine::advance(Sequence& sequence, std::span<const float> logits) {
  SampledToken token = sequence.sampler.sample(logits, sequence.length(), scratch_);
  sequence.token_ids.push_back(token.id);

  SequenceOutput output;
  output.request_id = sequence.request_id;
  output.sample_index = sequence.sample_index;
  output.token_ids.push_back(token.id);
  if (token.logprobs) output.logprobs.push_back(std::move(*token.logprobs));

  if (sequence.sampler.is_end_token(token.id)) {
    output.finish_reason = FinishReason::kStop;
  } else if (sequence.text) {
    const bool may_stop = sequence.sampler.num_generated() >= sequence.min_tokens;
    if (sequence.text->accept(token.id, may_stop, output.text)) {
      output.finish_reason = FinishReason::kStop;
      return output;
    }
  }
  if (!output.finish_reason && sequence.length() >= sequence.max_length) {
    output.finish_reason = FinishReason::kLength;
  }
  if (output.finish_reason && sequence.text) sequence.text->finish(output.text);
  return output;
}

}  // namespace millrace
