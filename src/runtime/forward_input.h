// What one step of the engine asks of a model: the tokens of each sequence and where they live.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

// Which rows of a sequence's chunk need logits.
enum class LogitsRows : uint8_t { kNone, kLast, kAll };

// One sequence's share of a step: `token_ids` are computed in this step and stand at positions
// num_computed, num_computed + 1, ... of the sequence. The views must outlive the step.
struct SequenceInput {
  std::span<const int32_t> token_ids;  // [query_len], at least one
  int64_t num_computed = 0;            // tokens of the sequence that are already in the cache
  std::span<const int32_t>
      block_table;  // pool blocks that hold positions 0 .. num_computed+query_len-1
  LogitsRows logits = LogitsRows::kLast;
};

// One step: all sequences advance together.
struct StepInput {
  std::vector<SequenceInput> sequences;
};

// Logits of the rows that asked for them, in the order of the sequences (and of the tokens within
// each). Owned by the runner; valid until its next step.
struct StepLogits {
  const float* rows = nullptr;  // [num_rows][vocab_size]
  int64_t num_rows = 0;
  int64_t vocab_size = 0;

  std::span<const float> row(int64_t i) const {
    return {rows + i * vocab_size, static_cast<size_t>(vocab_size)};
  }
};

}  // namespace millrace
