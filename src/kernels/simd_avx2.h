// V16 on AVX2: two 256-bit registers. Include kernels/simd.h, not this file.
#pragma once

namespace millrace {
namespace {

struct V16 {
  __m256 lo, hi;
};
struct I16 {
  __m256i lo, hi;
};
// All bits of a lane set or clear.
struct M16 {
  __m256i lo, hi;
};

MR_INLINE M16 mask_first(int n) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_cmpgt_epi32(_mm256_set1_epi32(n), index),
          _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), index)};
}

// Floats
MR_INLINE V16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
MR_INLINE V16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
MR_INLINE V16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
MR_INLINE V16 load_first(const float* p, int n) {
  const M16 mask = mask_first(n);
  return {_mm256_maskload_ps(p, mask.lo), _mm256_maskload_ps(p + 8, mask.hi)};
}
MR_INLINE void store(float* p, V16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
MR_INLINE void store_first(float* p, V16 a, int n) {
  const M16 mask = mask_first(n);
  _mm256_maskstore_ps(p, mask.lo, a.lo);
  _mm256_maskstore_ps(p + 8, mask.hi, a.hi);
}
// E4M3 codes as halves of the same bits: their value / 256, exactly. (Not for codes that are NaN.)
MR_INLINE __m256 eight_e4m3_over_256(__m128i codes) {
  return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7),
                                       _mm_set1_epi16(static_cast<int16_t>(0xbfff))));
}
MR_INLINE V16 load_e4m3_over_256(const uint8_t* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {eight_e4m3_over_256(codes), eight_e4m3_over_256(_mm_srli_si128(codes, 8))};
}
MR_INLINE V16 load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
MR_INLINE void store_f16(uint16_t* p, V16 a) {
  constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, kRound));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, kRound));
}
MR_INLINE V16 round_to_f16(V16 a) {
  constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_cvtph_ps(_mm256_cvtps_ph(a.lo, kRound)),
          _mm256_cvtph_ps(_mm256_cvtps_ph(a.hi, kRound))};
}
MR_INLINE __m256 bf16_half(const uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
MR_INLINE V16 load_bf16(const uint16_t* p) { return {bf16_half(p), bf16_half(p + 8)}; }
// a * b + c, one rounding.
MR_INLINE V16 fma(V16 a, V16 b, V16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// acc = fma(a, b, acc).
MR_INLINE void fma_into(V16& acc, V16 a, V16 b) { acc = fma(a, b, acc); }
MR_INLINE V16 add(V16 a, V16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
MR_INLINE V16 sub(V16 a, V16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
MR_INLINE V16 mul(V16 a, V16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
// acc = acc + a, and acc = acc * a.
MR_INLINE void add_into(V16& acc, V16 a) { acc = add(acc, a); }
MR_INLINE void mul_into(V16& acc, V16 a) { acc = mul(acc, a); }
MR_INLINE V16 div(V16 a, V16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
MR_INLINE V16 sqrt(V16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
// a > b ? a : b in every lane: b if either is NaN, and for two zeros.
MR_INLINE V16 max(V16 a, V16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
// a < b ? a : b in every lane: b if either is NaN, and for two zeros.
MR_INLINE V16 min(V16 a, V16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
MR_INLINE V16 round_even(V16 a) {
  constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kRound), _mm256_round_ps(a.hi, kRound)};
}
// To nearest even; INT32_MIN for NaN and for values out of range.
MR_INLINE I16 to_int(V16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
MR_INLINE V16 to_float(I16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
MR_INLINE I16 as_int(V16 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
MR_INLINE V16 as_float(I16 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }

// Ordered comparisons (false if either is NaN) and choice by lane: mask ? a : b.
MR_INLINE M16 greater(V16 a, V16 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ))};
}
MR_INLINE M16 less(V16 a, V16 b) { return greater(b, a); }
MR_INLINE V16 select(M16 mask, V16 a, V16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(mask.lo)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(mask.hi))};
}
// One bit a lane, lane 0 lowest.
MR_INLINE uint32_t bits_of(M16 mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(mask.lo))) |
         static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(mask.hi))) << 8;
}

// Integers
MR_INLINE I16 zero_int() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
MR_INLINE I16 set1_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
MR_INLINE I16 load_int(const void* p) {
  const __m256i* words = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}
MR_INLINE void store_int(void* p, I16 a) {
  __m256i* words = static_cast<__m256i*>(p);
  _mm256_storeu_si256(words, a.lo);
  _mm256_storeu_si256(words + 1, a.hi);
}
MR_INLINE I16 add(I16 a, I16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
MR_INLINE I16 sub(I16 a, I16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
MR_INLINE I16 max(I16 a, I16 b) {
  return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
MR_INLINE I16 and_bits(I16 a, I16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
MR_INLINE I16 or_bits(I16 a, I16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
MR_INLINE I16 xor_bits(I16 a, I16 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
template <int kBits>
MR_INLINE I16 shift_left(I16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>  // logical
MR_INLINE I16 shift_right(I16 a) {
  return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
}
template <int kBits>  // arithmetic
MR_INLINE I16 shift_right_signed(I16 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}
MR_INLINE M16 greater(I16 a, I16 b) {
  return {_mm256_cmpgt_epi32(a.lo, b.lo), _mm256_cmpgt_epi32(a.hi, b.hi)};
}
MR_INLINE I16 select(M16 mask, I16 a, I16 b) {
  return {_mm256_blendv_epi8(b.lo, a.lo, mask.lo), _mm256_blendv_epi8(b.hi, a.hi, mask.hi)};
}
MR_INLINE I16 load_u8(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
MR_INLINE I16 load_s8(const int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
// Low 16 bits of each lane.
MR_INLINE void store_low16(uint16_t* p, I16 a) {
  const I16 low = and_bits(a, set1_int(0xffff));
  const __m256i mixed = _mm256_packus_epi32(low.lo, low.hi);  // lo0 hi0 lo1 hi1, 64 bits each
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(mixed, 0xd8));
}
// Low 8 bits of each lane.
MR_INLINE void store_low8(void* p, I16 a) {
  const I16 low = and_bits(a, set1_int(0xff));
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low.lo, low.hi), 0xd8);
  const __m128i bytes =
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(static_cast<__m128i*>(p), bytes);
}
// The 4 bytes at p (any alignment) in every lane.
MR_INLINE I16 broadcast4(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return set1_int(word);
}

// Over all lanes; integers, so the order does not matter.
MR_INLINE int32_t reduce_max(I16 a) {
  const __m256i eight = _mm256_max_epi32(a.lo, a.hi);
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
MR_INLINE int32_t reduce_add(I16 a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

template <int kCodeBits>
MR_INLINE __m256i dot4_half(__m256i acc, __m256i codes_u8, __m256i values_s8) {
  if constexpr (kCodeBits <= 7) {
    // Pairs fit in 16 bits: 127 * 127 * 2 < 2^15.
    const __m256i pairs = _mm256_maddubs_epi16(codes_u8, values_s8);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  } else {
    // Pairs would saturate (255 * 127 * 2 > 2^15), so even and odd bytes are widened first.
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(codes_u8, _mm256_set1_epi16(0xff)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(values_s8, 8), 8));
    const __m256i odd =
        _mm256_madd_epi16(_mm256_srli_epi16(codes_u8, 8), _mm256_srai_epi16(values_s8, 8));
    return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
  }
}

// Dot products of 4 bytes a lane, exact: acc + sum of code (0..255) * value (-127..127).
// kCodeBits says how large codes can be: with 7 or fewer some instruction sets have a faster way.
template <int kCodeBits>
MR_INLINE I16 dot4(I16 acc, I16 codes_u8, I16 values_s8) {
  return {dot4_half<kCodeBits>(acc.lo, codes_u8.lo, values_s8.lo),
          dot4_half<kCodeBits>(acc.hi, codes_u8.hi, values_s8.hi)};
}

// dot4 with the 4 bytes at p in every lane of values_s8.
template <int kCodeBits>
MR_INLINE I16 dot4_broadcast(I16 acc, I16 codes_u8, const void* p) {
  return dot4<kCodeBits>(acc, codes_u8, broadcast4(p));
}

// Dot products of 4 signed bytes a lane (-127..127 each, so that no pair saturates).
MR_INLINE I16 dot4_signed(I16 acc, I16 a_s8, I16 b_s8) {
  return {dot4_half<7>(acc.lo, _mm256_abs_epi8(a_s8.lo), _mm256_sign_epi8(b_s8.lo, a_s8.lo)),
          dot4_half<7>(acc.hi, _mm256_abs_epi8(a_s8.hi), _mm256_sign_epi8(b_s8.hi, a_s8.hi))};
}

// As in simd_avx512.h.
MR_INLINE void keep_in_place(I16& sum) { asm("" : "+x"(sum.lo), "+x"(sum.hi)); }

// Bit i: whether byte i of 16 is not 0.
MR_INLINE uint32_t nonzero_bytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()))) ^
         0xffffu;
}

}  // namespace
}  // namespace millrace
