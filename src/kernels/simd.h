// The vector type of the kernels: V16 (16 floats), I16 (16 int32) and M16 (16 lane masks), with the
// same operations for every instruction set. All widths give the same bits: lanes are independent,
// fma is a true fma, conversions round to nearest even.
//
// Only for files that are compiled for one instruction set (*_portable.cc, *_avx2.cc,
// *_avx512*.cc). Everything is in an anonymous namespace, and such files include nothing but
// intrinsics and headers of plain types: an inline function that is compiled twice with different
// instruction sets may be merged by the linker, and then the wrong one runs.
//
// Not for sums over lanes: write those out, in the order that docs/numerics.md gives.
#pragma once

#include <cstdint>

#include "base/prefetch.h"

// GCC warns about uninitialised helpers inside its own intrinsic headers.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#pragma GCC diagnostic pop

#define MR_INLINE [[gnu::always_inline, maybe_unused]] inline

#if defined(__AVX512F__)
#include "kernels/simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/simd_avx2.h"
#else
#include "kernels/simd_portable.h"
#endif

namespace millrace {
namespace {

// Operations that are the same for all instruction sets.

MR_INLINE V16 operator+(V16 a, V16 b) { return add(a, b); }
MR_INLINE V16 operator-(V16 a, V16 b) { return sub(a, b); }
MR_INLINE V16 operator*(V16 a, V16 b) { return mul(a, b); }
MR_INLINE V16 operator/(V16 a, V16 b) { return div(a, b); }

MR_INLINE V16 abs(V16 a) { return as_float(and_bits(as_int(a), set1_int(0x7fffffff))); }
MR_INLINE V16 negate(V16 a) { return as_float(xor_bits(as_int(a), set1_int(INT32_MIN))); }

// To nearest even, the value kept as a float with the low 16 bits zero; NaN stays a quiet NaN. The
// same as f32_to_bf16 (tensor/dtype.h), denormals included.
MR_INLINE I16 bf16_bits(V16 a) {
  const I16 bits = as_int(a);
  const I16 lsb = and_bits(shift_right<16>(bits), set1_int(1));
  const I16 rounded = shift_right<16>(add(bits, add(lsb, set1_int(0x7fff))));
  const I16 nan = or_bits(shift_right<16>(bits), set1_int(0x40));
  const M16 is_nan = greater(and_bits(bits, set1_int(0x7fffffff)), set1_int(0x7f800000));
  return select(is_nan, nan, rounded);
}
MR_INLINE V16 round_to_bf16(V16 a) { return as_float(shift_left<16>(bf16_bits(a))); }
MR_INLINE void store_bf16(uint16_t* to, V16 a) { store_low16(to, bf16_bits(a)); }

// 16 bf16 pairs, packed as 32 bits (the first of a pair in the low half): the first of each, and
// the second.
MR_INLINE V16 bf16_first(I16 pairs) { return as_float(shift_left<16>(pairs)); }
MR_INLINE V16 bf16_second(I16 pairs) {
  return as_float(and_bits(pairs, set1_int(static_cast<int32_t>(0xffff0000u))));
}

}  // namespace
}  // namespace millrace
