// The router of a mixture of experts: which experts a token goes to, and with what weights.
//
// - sigmoid: s = 1 / (1 + e^-x); softmax: s = e^(x - max) / sum, the sum over 16 slots and the tree
// - choice: c = s + correction bias. Experts are in groups of consecutive ids; a group's score is
//   the sum of its two best c; the topk_groups best groups stay, and of their experts the k best by
//   c
// - weights: s of the chosen, divided by (their sum + epsilon) if normalised, times the scale
//
// Ties go to the lower id; -0 = +0, NaN = -inf in every comparison. The sum over the chosen is a
// chain in ascending id. All in fp32.
// Sources: DeepSeek-V3, section 2.1.2; docs/numerics.md, "Experts".
#pragma once

#include <cstdint>

#include "kernels/row_kernels.h"

namespace millrace {

struct RouterArgs {
  const RowKernels* kernels = nullptr;
  const float* logits = nullptr;  // [tokens][num_experts]
  int num_experts = 0;
  bool softmax = false;                    // else sigmoid
  const float* correction_bias = nullptr;  // [num_experts], or null
  int num_groups = 1;
  int topk_groups = 1;
  int experts_per_token = 0;  // at most the experts of topk_groups groups
  bool normalise = false;
  float epsilon = 0;
  float scale = 1;
  int32_t* experts = nullptr;  // out: [tokens][experts_per_token], ascending
  float* weights = nullptr;    // out: likewise
};

// Bytes of scratch memory that route() needs.
int64_t router_scratch_bytes(int num_experts, int num_groups);

// Routes tokens [token_begin, token_end).
void route(const RouterArgs& args, int64_t token_begin, int64_t token_end, std::byte* scratch);

}  // namespace millrace
