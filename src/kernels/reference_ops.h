// Scalar reference of the small kernels: plain loops, the judge of every instruction set's build.
// Same contracts as row_kernels.h.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/expert_combine.h"
#include "kernels/kv_write.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace millrace {

// The sum of 16 values by the tree: ((0+1)+(2+3))+((4+5)+(6+7)), plus the same of 8..15.
float reference_tree16(const float* values);

// One bf16 dot product of a pair, as the instruction computes it: acc + a[1] * b[1], then + a[0] *
// b[0], each rounded to fp32; denormal factors and results count as zero.
struct Bf16Pair {
  uint16_t first = 0;
  uint16_t second = 0;
};
float reference_bf16_dot(float acc, Bf16Pair a, Bf16Pair b);

void reference_rms_norm(const RmsNormArgs& args, int64_t row_begin, int64_t row_end);
void reference_rope(const RopeArgs& args, int64_t row_begin, int64_t row_end);
void reference_layer_norm(const LayerNormArgs& args, int64_t row_begin, int64_t row_end);
void reference_expert_combine(const ExpertCombineArgs& args, int64_t token);
void reference_kv_write(const KvWriteArgs& args, int64_t token_begin, int64_t token_end);

}  // namespace millrace
