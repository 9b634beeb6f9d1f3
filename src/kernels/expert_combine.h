// The end of a mixture of experts: the weighted sum of a token's expert outputs, the shared expert,
// the residual (docs/numerics.md, "Experts").
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// For each token: per expert leaf (leaf j of E experts is [E*j/16, E*(j+1)/16)), a chain over the
// token's experts of that leaf in ascending id, acc = fma(weight, output, acc) from +0; the tree
// over the 16 leaves, empty ones being +0; then the shared expert is added, if there is one:
//   residual = round(residual + round(routed + shared))
struct ExpertCombineArgs {
  const float* expert_out = nullptr;  // [assignments][n]; not rounded
  // [tokens][experts_per_token], experts ascending for each token
  const int32_t* experts = nullptr;
  const float* weights = nullptr;
  const int32_t* assignments = nullptr;  // row of expert_out of each
  int experts_per_token = 0;
  int num_experts = 0;
  const float* shared = nullptr;  // [tokens][n], not rounded; or null
  float* residual = nullptr;      // [tokens][residual_stride]
  int64_t residual_stride = 0;
  int64_t n = 0;
  DType dtype = DType::kF32;
};

// Computes columns [column_begin, column_end) of one token; column_begin is a multiple of 16.
using ExpertCombineFunction = void (*)(const ExpertCombineArgs& args, int64_t token,
                                       int64_t column_begin, int64_t column_end);

}  // namespace millrace
