// Wide, the vectors of the attention kernels: as many lanes as one register has, so that tiles of
// accumulators stay in registers. For files of one instruction set only, like simd.h.
#pragma once

#include "base/prefetch.h"
#include "kernels/simd_rows.h"

namespace millrace {
namespace {

#if defined(__AVX2__) && !defined(__AVX512F__)

inline constexpr int kWide = 8;
struct Wide {
  __m256 v;
};
MR_INLINE Wide wide_zero() { return {_mm256_setzero_ps()}; }
MR_INLINE Wide wide_set1(float x) { return {_mm256_set1_ps(x)}; }
MR_INLINE Wide wide_load(const float* p) { return {_mm256_loadu_ps(p)}; }
MR_INLINE Wide wide_load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
MR_INLINE Wide wide_load_bf16(const uint16_t* p) { return {bf16_half(p)}; }
MR_INLINE Wide wide_load_s8(const int8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
}
MR_INLINE void wide_store(float* p, Wide a) { _mm256_storeu_ps(p, a.v); }
MR_INLINE void wide_fma_into(Wide& acc, Wide a, Wide b) {
  acc = {_mm256_fmadd_ps(a.v, b.v, acc.v)};
}
MR_INLINE Wide wide_mul(Wide a, Wide b) { return {_mm256_mul_ps(a.v, b.v)}; }

#else

inline constexpr int kWide = 16;
using Wide = V16;
MR_INLINE Wide wide_zero() { return zero(); }
MR_INLINE Wide wide_set1(float x) { return set1(x); }
MR_INLINE Wide wide_load(const float* p) { return load(p); }
MR_INLINE Wide wide_load_f16(const uint16_t* p) { return load_f16(p); }
MR_INLINE Wide wide_load_bf16(const uint16_t* p) { return load_bf16(p); }
MR_INLINE Wide wide_load_s8(const int8_t* p) { return to_float(load_s8(p)); }
MR_INLINE void wide_store(float* p, Wide a) { store(p, a); }
MR_INLINE void wide_fma_into(Wide& acc, Wide a, Wide b) { fma_into(acc, a, b); }
MR_INLINE Wide wide_mul(Wide a, Wide b) { return mul(a, b); }

#endif

// Asks for a cache line of a tile in the second-level cache. Tiles of a few KB are too short for
// the hardware's prefetcher, and prefetches into the first level are bound by its few miss buffers:
// on Zen 4 a core reads 10 GB/s with either, 17 with these.
MR_INLINE void prefetch_tile(const void* p) { prefetch_level2(p); }

}  // namespace
}  // namespace millrace
