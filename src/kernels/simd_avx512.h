// V16 on AVX-512: one 512-bit register. Include kernels/simd.h, not this file.
#pragma once

namespace millrace {
namespace {

struct V16 {
  __m512 v;
};
struct I16 {
  __m512i v;
};
struct M16 {
  __mmask16 m;
};

MR_INLINE __mmask16 first_lanes(int n) {
  return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1u);
}

// Floats
MR_INLINE V16 zero() { return {_mm512_setzero_ps()}; }
MR_INLINE V16 set1(float x) { return {_mm512_set1_ps(x)}; }
MR_INLINE V16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
MR_INLINE V16 load_first(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
MR_INLINE void store(float* p, V16 a) { _mm512_storeu_ps(p, a.v); }
MR_INLINE void store_first(float* p, V16 a, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}
MR_INLINE V16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
MR_INLINE void store_f16(uint16_t* p, V16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
MR_INLINE V16 round_to_f16(V16 a) {
  return {_mm512_cvtph_ps(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
// E4M3 codes as halves of the same bits: their value / 256, exactly. (Not for codes that are NaN.)
MR_INLINE V16 load_e4m3_over_256(const uint8_t* p) {
  const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(words, 7),
                                           _mm256_set1_epi16(static_cast<int16_t>(0xbfff))))};
}
MR_INLINE V16 load_bf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
// a * b + c, one rounding.
MR_INLINE V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// acc = fma(a, b, acc), in acc's own register: left to itself GCC puts some sums where a factor was
// and moves them back, one move to six products in a tile of 24 sums, and spills two of them.
// Statements of this kind keep their order, also to changes of what becomes of denormals.
MR_INLINE void fma_into(V16& acc, V16 a, V16 b) {
  asm volatile("vfmadd231ps %2, %1, %0" : "+v"(acc.v) : "v"(a.v), "v"(b.v));
}
// acc = acc + a, and acc = acc * a, likewise.
MR_INLINE void add_into(V16& acc, V16 a) {
  asm volatile("vaddps %1, %0, %0" : "+v"(acc.v) : "vm"(a.v));
}
MR_INLINE void mul_into(V16& acc, V16 a) {
  asm volatile("vmulps %1, %0, %0" : "+v"(acc.v) : "v"(a.v));
}
MR_INLINE V16 add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
MR_INLINE V16 sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
MR_INLINE V16 mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
MR_INLINE V16 div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
MR_INLINE V16 sqrt(V16 a) { return {_mm512_sqrt_ps(a.v)}; }
// a > b ? a : b in every lane: b if either is NaN, and for two zeros.
MR_INLINE V16 max(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
// a < b ? a : b in every lane: b if either is NaN, and for two zeros.
MR_INLINE V16 min(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }
MR_INLINE V16 round_even(V16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// To nearest even; INT32_MIN for NaN and for values out of range.
MR_INLINE I16 to_int(V16 a) { return {_mm512_cvtps_epi32(a.v)}; }
MR_INLINE V16 to_float(I16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
MR_INLINE I16 as_int(V16 a) { return {_mm512_castps_si512(a.v)}; }
MR_INLINE V16 as_float(I16 a) { return {_mm512_castsi512_ps(a.v)}; }

// Ordered comparisons (false if either is NaN) and choice by lane: mask ? a : b.
MR_INLINE M16 greater(V16 a, V16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
MR_INLINE M16 less(V16 a, V16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
MR_INLINE V16 select(M16 mask, V16 a, V16 b) { return {_mm512_mask_blend_ps(mask.m, b.v, a.v)}; }
// One bit a lane, lane 0 lowest.
MR_INLINE uint32_t bits_of(M16 mask) { return mask.m; }
MR_INLINE M16 mask_first(int n) { return {first_lanes(n)}; }

// Integers
MR_INLINE I16 zero_int() { return {_mm512_setzero_si512()}; }
MR_INLINE I16 set1_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
MR_INLINE I16 load_int(const void* p) { return {_mm512_loadu_si512(p)}; }
MR_INLINE void store_int(void* p, I16 a) { _mm512_storeu_si512(p, a.v); }
MR_INLINE I16 add(I16 a, I16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
MR_INLINE I16 sub(I16 a, I16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
MR_INLINE I16 max(I16 a, I16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
MR_INLINE I16 and_bits(I16 a, I16 b) { return {_mm512_and_si512(a.v, b.v)}; }
MR_INLINE I16 or_bits(I16 a, I16 b) { return {_mm512_or_si512(a.v, b.v)}; }
MR_INLINE I16 xor_bits(I16 a, I16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int kBits>
MR_INLINE I16 shift_left(I16 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>  // logical
MR_INLINE I16 shift_right(I16 a) {
  return {_mm512_srli_epi32(a.v, kBits)};
}
template <int kBits>  // arithmetic
MR_INLINE I16 shift_right_signed(I16 a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}
MR_INLINE M16 greater(I16 a, I16 b) { return {_mm512_cmpgt_epi32_mask(a.v, b.v)}; }
MR_INLINE I16 select(M16 mask, I16 a, I16 b) { return {_mm512_mask_blend_epi32(mask.m, b.v, a.v)}; }
MR_INLINE I16 load_u8(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
MR_INLINE I16 load_s8(const int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
// Low 8 bits of each lane.
MR_INLINE void store_low8(void* p, I16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
// Low 16 bits of each lane.
MR_INLINE void store_low16(uint16_t* p, I16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v));
}
// The 4 bytes at p (any alignment) in every lane.
MR_INLINE I16 broadcast4(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return {_mm512_set1_epi32(word)};
}

// Over all lanes; integers, so the order does not matter.
MR_INLINE int32_t reduce_max(I16 a) { return _mm512_reduce_max_epi32(a.v); }
MR_INLINE int32_t reduce_add(I16 a) { return _mm512_reduce_add_epi32(a.v); }

// Dot products of 4 bytes a lane, exact: acc + sum of code (0..255) * value (-127..127).
// kCodeBits says how large codes can be: with 7 or fewer some instruction sets have a faster way.
template <int kCodeBits>
MR_INLINE I16 dot4(I16 acc, I16 codes_u8, I16 values_s8) {
#if defined(__AVX512VNNI__)
  return {_mm512_dpbusd_epi32(acc.v, codes_u8.v, values_s8.v)};
#else
  if constexpr (kCodeBits <= 7) {
    // Pairs fit in 16 bits: 127 * 127 * 2 < 2^15.
    const __m512i pairs = _mm512_maddubs_epi16(codes_u8.v, values_s8.v);
    return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
  } else {
    // Pairs would saturate (255 * 127 * 2 > 2^15), so even and odd bytes are widened first.
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(codes_u8.v, _mm512_set1_epi16(0xff)),
                                           _mm512_srai_epi16(_mm512_slli_epi16(values_s8.v, 8), 8));
    const __m512i odd =
        _mm512_madd_epi16(_mm512_srli_epi16(codes_u8.v, 8), _mm512_srai_epi16(values_s8.v, 8));
    return {_mm512_add_epi32(acc.v, _mm512_add_epi32(even, odd))};
  }
#endif
}

// dot4 with the 4 bytes at p in every lane of values_s8.
template <int kCodeBits>
MR_INLINE I16 dot4_broadcast(I16 acc, I16 codes_u8, const void* p) {
#if defined(__AVX512VNNI__)
  // The form with an operand in memory, which the compiler does not make of the intrinsic.
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(acc.v)
      : "v"(codes_u8.v), "m"(*static_cast<const int32_t*>(p)));
  return acc;
#else
  return dot4<kCodeBits>(acc, codes_u8, broadcast4(p));
#endif
}

// Dot products of 4 signed bytes a lane (-127..127 each, so that no pair saturates).
MR_INLINE I16 dot4_signed(I16 acc, I16 a_s8, I16 b_s8) {
  const __m512i magnitude = _mm512_abs_epi8(a_s8.v);
  const __mmask64 negative = _mm512_movepi8_mask(a_s8.v);
  const __m512i turned = _mm512_mask_sub_epi8(b_s8.v, negative, _mm512_setzero_si512(), b_s8.v);
#if defined(__AVX512VNNI__)
  return {_mm512_dpbusd_epi32(acc.v, magnitude, turned)};
#else
  const __m512i pairs = _mm512_maddubs_epi16(magnitude, turned);
  return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
#endif
}

// Keeps the sum that a loop carries in one register: GCC would copy it to another one and back in
// each round.
MR_INLINE void keep_in_place(I16& sum) { asm("" : "+v"(sum.v)); }

// Bit i: whether byte i of 16 is not 0.
MR_INLINE uint32_t nonzero_bytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm_test_epi8_mask(bytes, bytes);
}

}  // namespace
}  // namespace millrace
