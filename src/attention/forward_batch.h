// The tokens of one step as all layers see them: made once per forward by the runner.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention_gqa.h"
#include "tensor/token_layout.h"

namespace millrace {

// Arrays live in the runner's arena until the step is over. Rows are tokens, sequence after
// sequence.
struct ForwardBatch {
  int64_t num_tokens = 0;
  TokenLayout tokens;                     // of the rows below
  const int32_t* token_ids = nullptr;     // [num_tokens]
  const int32_t* positions = nullptr;     // [num_tokens], from 0 within each sequence
  const int64_t* slot_mapping = nullptr;  // [num_tokens], block * block_size + offset
  std::span<const AttentionSequence> sequences;
  const int32_t* logits_rows = nullptr;  // [num_logits], tokens whose logits are wanted, ascending
  int64_t num_logits = 0;
  // The wanted tokens alone, numbered from 0 to num_logits - 1, and their queries: query_start is
  // in that numbering, and sequences without any are left out.
  TokenLayout logits_tokens;
  std::span<const AttentionSequence> logits_sequences;
};

}  // namespace millrace
