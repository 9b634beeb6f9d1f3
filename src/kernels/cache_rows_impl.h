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
  // Bits of floats that are not negative have their order.
  const float amax = __builtin_bit_cast(float, reduce_max(as_int(largest)));
  const bool is_nan = bits_of(greater(as_int(abs(nans)), set1_int(0x7f800000))) != 0;
  if (!is_nan) return amax / 127.0f;
  // Rare: find the first NaN, as the reference does; only infinities give an infinite scale.
  for (int d = 0; d < n; ++d) {
    if (x[d] != x[d]) return __builtin_fabsf(x[d]) / 127.0f;
  }
  return amax / 127.0f;
}

// Codes of elements, -127 to 127: x / scale to the nearest integer, ties to even; 0 for a scale
// that divides nothing.
class Int8Codes {
 public:
  explicit Int8Codes(float scale)
      : scale_(scale),
        usable_(scale > 0 && scale < __builtin_inff()),
        invertible_(scale > 0x1p-100f && scale < 0x1p100f),  // the inverse is a normal number
        inverse_(invertible_ ? 1.0f / scale : 0.0f) {}

  // Of up to 16 elements from x, absent ones 0.
  MR_INLINE I16 of(const float* x, int count) const {
    if (!usable_) return zero_int();
    const V16 elements = load_first(x, count);
    if (invertible_) {
      // A product is cheaper than a quotient. Both cut at 127, they differ by three roundings at
      // most, 127 * 3 * 2^-24 = 2.3e-5: only so close to a tie the codes could differ.
      const V16 product = clamp(elements * set1(inverse_));
      const I16 codes = to_int(product);
      const V16 rest = abs(product - to_float(codes));
      if (bits_of(greater(rest, set1(0.5f - kTieMargin))) == 0) return codes;
    }
    return to_int(clamp(elements / set1(scale_)));
  }

 private:
  static constexpr float kTieMargin = 0x1p-15f;

  MR_INLINE static V16 clamp(V16 x) { return max(min(x, set1(127.0f)), set1(-127.0f)); }

  float scale_;
  bool usable_;
  bool invertible_;
  float inverse_;
};

// Codes of a row, `stride` apart.
[[maybe_unused]] void write_int8(const float* x, int n, float scale, int stride, int8_t* to) {
  const Int8Codes codes(scale);
  int8_t chunk[16];
  for (int d = 0; d < n; d += 16) {
    const int count = n - d < 16 ? n - d : 16;
    store_low8(chunk, codes.of(x + d, count));
    copy_chunk(chunk, count, stride, to + d * stride);
  }
}

}  // namespace
}  // namespace millrace
