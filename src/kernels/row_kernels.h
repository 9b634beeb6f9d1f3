// The small kernels (norms, RoPE, element by element steps, cache write, sum of experts) of one
// instruction set.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/expert_combine.h"
#include "kernels/isa.h"
#include "kernels/kv_write.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace millrace {

struct RowKernels {
  const char* name;  // the build that it is: portable, avx2 or avx512
  RmsNormFunction rms_norm;
  RopeFunction rope;
  KvWriteFunction kv_write;
  // out[i] = exp_f32(x[i]) for i < n; out may be x.
  void (*exp)(const float* x, float* out, int64_t n);
  // The sum of n values over 16 slots (value i belongs to slot i % 16) and the tree.
  float (*sum)(const float* x, int64_t n);
  LayerNormFunction layer_norm;
  RoundFunction round;
  ExpertCombineFunction expert_combine;
};

// The kernels for `isa` (avx512vnni uses the avx512 build). All give the bits of reference_ops.h.
const RowKernels& row_kernels(Isa isa);

}  // namespace millrace
