// The functions of math.h and dtype.h over V16, equal to them bit by bit in every lane. For files
// of one instruction set only, like simd.h.
#pragma once

#include "kernels/math_constants.h"
#include "kernels/simd.h"
#include "tensor/dtype.h"

namespace millrace {
namespace {

// exp_f32 (math.h) of each lane.
MR_INLINE V16 exp(V16 x) {
  const V16 magic = set1(kExpMagic);
  const V16 shifted = fma(x, set1(kExpLog2E), magic);
  const V16 n = shifted - magic;
  V16 r = fma(n, set1(-kExpLn2High), x);
  r = fma(n, set1(-kExpLn2Low), r);
  V16 q = fma(set1(kExpC6), r, set1(kExpC5));
  q = fma(q, r, set1(kExpC4));
  q = fma(q, r, set1(kExpC3));
  q = fma(q, r, set1(kExpC2));
  const V16 p = fma(r * r, q, r) + set1(1.0f);
  V16 result = as_float(add(as_int(p), shift_left<23>(as_int(shifted))));
  // Too large, or NaN: x + inf. A NaN is not below the limit.
  result = select(less(x, set1(kExpMax + 0x1p-17f)), result, x + set1(__builtin_inff()));
  return select(less(x, set1(kExpMin)), zero(), result);
}

// silu (math.h) of each lane.
MR_INLINE V16 silu(V16 x) { return x / (set1(1.0f) + exp(negate(x))); }

// round_to (dtype.h) of each lane; dtype is f32, f16 or bf16.
template <DType kDType>
MR_INLINE V16 round_to(V16 x) {
  if constexpr (kDType == DType::kF16) {
    return round_to_f16(x);
  } else if constexpr (kDType == DType::kBF16) {
    return round_to_bf16(x);
  } else {
    static_assert(kDType == DType::kF32);
    return x;
  }
}
MR_INLINE V16 round_to(DType dtype, V16 x) {
  if (dtype == DType::kF16) return round_to_f16(x);
  if (dtype == DType::kBF16) return round_to_bf16(x);
  return x;
}

// The sum of the 16 lanes by the tree of docs/numerics.md.
MR_INLINE float tree16(V16 x) {
  float level[16];
  store(level, x);
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) level[i] = level[2 * i] + level[2 * i + 1];
  }
  return level[0];
}

}  // namespace
}  // namespace millrace
