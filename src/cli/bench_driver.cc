#include "cli/bench_driver.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace millrace {

int64_t BenchDriver::blocks_needed(int64_t batch, int64_t max_tokens, int64_t block_size) {
  return batch * ((max_tokens + block_size - 1) / block_size);
}

BenchDriver::BenchDriver(ModelRunner& runner, int64_t batch, int64_t max_tokens)
    : runner_(runner), filled_(static_cast<size_t>(batch), 0) {
  const int64_t blocks = blocks_needed(1, max_tokens, runner.options().block_size);
  for (int64_t s = 0; s < batch; ++s) {
    auto& table = block_tables_.emplace_back();
    for (int64_t b = 0; b < blocks; ++b) table.push_back(static_cast<int32_t>(s * blocks + b));
  }
}

int64_t BenchDriver::missing(int64_t batch, int64_t depth) const {
  int64_t tokens = 0;
  for (int64_t s = 0; s < batch; ++s) {
    tokens += std::max<int64_t>(0, depth - filled_[static_cast<size_t>(s)]);
  }
  return tokens;
}

Result<> BenchDriver::fill(int64_t batch, int64_t depth, const OnTokens& on_tokens) {
  std::vector<Chunk> spans;
  for (int64_t s = 0; s < batch; ++s) {
    int64_t& filled = filled_[static_cast<size_t>(s)];
    if (filled < depth) spans.push_back({s, filled, depth, LogitsRows::kNone});
    filled = std::max(filled, depth);
  }
  BenchRun unmeasured;
  return compute(spans, unmeasured, on_tokens);
}

Result<BenchRun> BenchDriver::prefill(int64_t batch, int64_t depth, int64_t length,
                                      const OnTokens& on_tokens) {
  std::vector<Chunk> spans;
  spans.reserve(static_cast<size_t>(batch));
  for (int64_t s = 0; s < batch; ++s) {
    spans.push_back({s, depth, depth + length, LogitsRows::kLast});
  }
  BenchRun run;
  MR_TRY(compute(spans, run, on_tokens));
  return run;
}

Result<BenchRun> BenchDriver::decode(int64_t batch, int64_t depth, int64_t steps,
                                     const OnTokens& on_tokens) {
  BenchRun run;
  std::vector<Chunk> chunks(static_cast<size_t>(batch));
  for (int64_t i = 0; i < steps; ++i) {
    for (int64_t s = 0; s < batch; ++s) {
      chunks[static_cast<size_t>(s)] = {s, depth + i, depth + i + 1, LogitsRows::kLast};
    }
    MR_TRY(step(chunks, run, on_tokens));
  }
  return run;
}

Result<> BenchDriver::compute(const std::vector<Chunk>& spans, BenchRun& run,
                              const OnTokens& on_tokens) {
  const int64_t budget = runner_.options().max_num_batched_tokens;
  const auto max_chunks = static_cast<size_t>(runner_.options().max_num_seqs);
  std::vector<Chunk> chunks;
  int64_t left = budget;
  for (Chunk span : spans) {
    while (span.begin < span.end) {
      const int64_t end = std::min(span.end, span.begin + left);
      const bool last = end == span.end;
      chunks.push_back({span.sequence, span.begin, end, last ? span.logits : LogitsRows::kNone});
      left -= end - span.begin;
      span.begin = end;
      if (left > 0 && chunks.size() < max_chunks) continue;
      MR_TRY(step(chunks, run, on_tokens));
      chunks.clear();
      left = budget;
    }
  }
  if (chunks.empty()) return {};
  return step(chunks, run, on_tokens);
}

Result<> BenchDriver::step(const std::vector<Chunk>& chunks, BenchRun& run,
                           const OnTokens& on_tokens) {
  int64_t tokens = 0;
  for (const Chunk& chunk : chunks) tokens += chunk.end - chunk.begin;
  token_ids_.resize(static_cast<size_t>(tokens));
  std::uniform_int_distribution<int32_t> any(0, static_cast<int32_t>(runner_.vocab_size() - 1));
  for (int32_t& id : token_ids_) id = any(random_);

  StepInput input;
  size_t offset = 0;
  for (const Chunk& chunk : chunks) {
    const auto length = static_cast<size_t>(chunk.end - chunk.begin);
    const int64_t block_size = runner_.options().block_size;
    SequenceInput sequence;
    sequence.token_ids = std::span(token_ids_).subspan(offset, length);
    sequence.num_computed = chunk.begin;
    sequence.block_table =
        std::span(block_tables_[static_cast<size_t>(chunk.sequence)])
            .first(static_cast<size_t>((chunk.end + block_size - 1) / block_size));
    sequence.logits = chunk.logits;
    input.sequences.push_back(sequence);
    offset += length;
  }
  Program& program = runner_.program();
  program.set_timing(profile_);
  const auto start = std::chrono::steady_clock::now();
  if (const auto logits = runner_.forward(input); !logits) {
    return std::unexpected(logits.error());
  }
  run.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run.tokens += tokens;
  run.cost = run.cost + program.total_cost();
  for (size_t i = 0; i < program.step_seconds().size(); ++i) {
    StepProfile& profile = run.profile[program.label(static_cast<int64_t>(i))];
    profile.seconds += program.step_seconds()[i];
    profile.count += 1;
    profile.cost = profile.cost + program.cost(static_cast<int64_t>(i));
  }
  return on_tokens(tokens);
}

}  // namespace millrace
