// softmax_weights over V16, compiled once per instruction set by softmax_weights_<isa>.cc.
#pragma once

#include "kernels/simd_math.h"

namespace millrace {
namespace {

MR_INLINE V16 weights_of(V16 x, V16 max, V16 inverse_temperature) {
  const V16 z = (x - max) * inverse_temperature;
  // z is at most 0, or NaN.
  return select(less(z, set1(1e-30f)), exp(z), zero());
}

void softmax_weights_run(const float* logits, int64_t n, float max, float inverse_temperature,
                         float* weights) {
  const V16 m = set1(max);
  const V16 t = set1(inverse_temperature);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(weights + i, weights_of(load(logits + i), m, t));
  if (const int tail = static_cast<int>(n - i); tail > 0) {
    store_first(weights + i, weights_of(load_first(logits + i, tail), m, t), tail);
  }
}

}  // namespace
}  // namespace millrace
