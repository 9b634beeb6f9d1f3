// Rounding of rows to the types of the caches, over V16. For files of one instruction set only,
// like simd.h. A user need not use all of it.
#pragma once

#include "kernels/simd_math.h"

namespace millrace {
namespace {

template <typename Element>
MR_INLINE void copy_chunk(const Element* chunk, int count, int stride, Element* to) {
  for (int i = 0; i < count; ++i) to[i * stride] = chunk[i];
}

// Up to 16 elements as f32, f16 or bf16; chunk has 16.
template <DType kDType, typename Element>
MR_INLINE void convert_chunk(const float* x, int count, Element* chunk) {
  const V16 v = load_first(x, count);
  if constexpr (kDType == DType::kF16) {
    store_f16(chunk, v);
  } else if constexpr (kDType == DType::kBF16) {
    store_bf16(chunk, v);
  } else {
    store(chunk, v);
  }
}

// The scale of a row of int8 codes, as kv_write.h gives it.
[[maybe_unused]] float int8_scale(const float* x, int n) {
  V16 largest = zero();
  V16 nans = zero();
  for (int d = 0; d < n; d += 16) {
    const V16 v = load_first(x + d, n - d < 16 ? n - d : 16);
    largest = max(abs(v), largest);  // a NaN in v leaves `largest`
    nans = nans + v * zero();        // NaN where v is NaN or infinite
  }
  float lanes[16];
  float nan_lanes[16];
  store(lanes, largest);
  store(nan_lanes, nans);
  float amax = 0;
  bool is_nan = false;
  for (int i = 0; i < 16; ++i) {
    if (lanes[i] > amax) amax = lanes[i];
    is_nan = is_nan || nan_lanes[i] != nan_lanes[i];
  }
  if (!is_nan) return amax / 127.0f;
  // Rare: find the first NaN, as the reference does; only infinities give an infinite scale.
  for (int d = 0; d < n; ++d) {
    if (x[d] != x[d]) return __builtin_fabsf(x[d]) / 127.0f;
  }
  return amax / 127.0f;
}

// Codes of a row, `stride` apart.
[[maybe_unused]] void write_int8(const float* x, int n, float scale, int stride, int8_t* to) {
  const bool usable = scale > 0 && scale < __builtin_inff();
  int8_t chunk[16];
  for (int d = 0; d < n; d += 16) {
    const int count = n - d < 16 ? n - d : 16;
    I16 codes = zero_int();
    if (usable) {
      const V16 quotient = load_first(x + d, count) / set1(scale);
      codes = to_int(max(min(quotient, set1(127.0f)), set1(-127.0f)));
    }
    store_low8(chunk, codes);
    copy_chunk(chunk, count, stride, to + d * stride);
  }
}

}  // namespace
}  // namespace millrace
