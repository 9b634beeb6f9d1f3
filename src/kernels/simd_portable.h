// V16 in plain C++ for any 64-bit target: GCC's vector extension, which the compiler splits into
// what the target has, and loops over lanes for the rest. The loops are functions of their own,
// because sixteen unrolled lanes in every use would take minutes to compile. Include
// kernels/simd.h, not this file.
#pragma once

// Vectors wider than the target's registers are passed in memory: fine inside one file.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace millrace {
namespace {

typedef float FloatLanes __attribute__((vector_size(64)));
typedef int32_t IntLanes __attribute__((vector_size(64)));
typedef uint32_t UintLanes __attribute__((vector_size(64)));

struct V16 {
  FloatLanes v;
};
struct I16 {
  IntLanes v;
};
// -1 (true) or 0 a lane.
struct M16 {
  IntLanes v;
};

#define MR_LANES for (int i = 0; i < 16; ++i)
#define MR_OUTLINE [[gnu::noinline, maybe_unused]]

MR_INLINE float float_of_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
MR_INLINE uint32_t bits_of_float(float value) { return __builtin_bit_cast(uint32_t, value); }

MR_INLINE float f16_lane(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity, or NaN made quiet
    return float_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 |
                         (magnitude > 0x7c00u ? 0x400000u : 0u));
  }
  return float_of_bits(sign | bits_of_float(float_of_bits(magnitude << 13) * 0x1p112f));
}

MR_INLINE uint16_t f16_bits_lane(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // a denormal half: the addition rounds to steps of 2^-24
    return static_cast<uint16_t>(sign |
                                 (bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u));
  }
  return static_cast<uint16_t>(
      sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13));
}

// Floats
MR_INLINE V16 set1(float x) { return {FloatLanes{} + x}; }
MR_INLINE V16 zero() { return {FloatLanes{}}; }
MR_INLINE V16 load(const float* p) {
  V16 r;
  __builtin_memcpy(&r.v, p, 64);
  return r;
}
MR_INLINE void store(float* p, V16 a) { __builtin_memcpy(p, &a.v, 64); }
MR_OUTLINE V16 load_first(const float* p, int n) {
  V16 r = zero();
  for (int i = 0; i < n && i < 16; ++i) r.v[i] = p[i];
  return r;
}
MR_OUTLINE void store_first(float* p, const V16& a, int n) {
  for (int i = 0; i < n && i < 16; ++i) p[i] = a.v[i];
}
MR_OUTLINE V16 load_f16(const uint16_t* p) {
  V16 r;
  MR_LANES r.v[i] = f16_lane(p[i]);
  return r;
}
MR_OUTLINE void store_f16(uint16_t* p, const V16& a) { MR_LANES p[i] = f16_bits_lane(a.v[i]); }
MR_OUTLINE V16 round_to_f16(const V16& a) {
  V16 r;
  MR_LANES r.v[i] = f16_lane(f16_bits_lane(a.v[i]));
  return r;
}
// E4M3 codes as halves of the same bits: their value / 256, exactly. (Not for codes that are NaN.)
MR_OUTLINE V16 load_e4m3_over_256(const uint8_t* p) {
  V16 r;
  MR_LANES r.v[i] = f16_lane(static_cast<uint16_t>((p[i] & 0x80) << 8 | (p[i] & 0x7f) << 7));
  return r;
}
MR_OUTLINE V16 load_bf16(const uint16_t* p) {
  V16 r;
  MR_LANES r.v[i] = float_of_bits(static_cast<uint32_t>(p[i]) << 16);
  return r;
}
// a * b + c, one rounding.
MR_OUTLINE V16 fma(const V16& a, const V16& b, const V16& c) {
  V16 r;
  MR_LANES r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
}
// acc = fma(a, b, acc).
MR_INLINE void fma_into(V16& acc, const V16& a, const V16& b) { acc = fma(a, b, acc); }
MR_INLINE V16 add(V16 a, V16 b) { return {a.v + b.v}; }
MR_INLINE V16 sub(V16 a, V16 b) { return {a.v - b.v}; }
MR_INLINE V16 mul(V16 a, V16 b) { return {a.v * b.v}; }
// acc = acc + a, and acc = acc * a.
MR_INLINE void add_into(V16& acc, const V16& a) { acc = add(acc, a); }
MR_INLINE void mul_into(V16& acc, const V16& a) { acc = mul(acc, a); }
MR_INLINE V16 div(V16 a, V16 b) { return {a.v / b.v}; }
MR_OUTLINE V16 sqrt(const V16& a) {
  V16 r;
  MR_LANES r.v[i] = __builtin_sqrtf(a.v[i]);
  return r;
}
// a > b ? a : b in every lane: b if either is NaN, and for two zeros.
MR_INLINE V16 max(V16 a, V16 b) { return {a.v > b.v ? a.v : b.v}; }
// a < b ? a : b in every lane: b if either is NaN, and for two zeros.
MR_INLINE V16 min(V16 a, V16 b) { return {a.v < b.v ? a.v : b.v}; }
MR_OUTLINE V16 round_even(const V16& a) {
  V16 r;
  MR_LANES r.v[i] = __builtin_nearbyintf(a.v[i]);
  return r;
}
// To nearest even; INT32_MIN for NaN and for values out of range.
MR_OUTLINE I16 to_int(const V16& a) {
  I16 r;
  MR_LANES {
    const float rounded = __builtin_nearbyintf(a.v[i]);
    const bool fits = rounded >= -0x1p31f && rounded < 0x1p31f;
    r.v[i] = fits ? static_cast<int32_t>(rounded) : INT32_MIN;
  }
  return r;
}
MR_INLINE V16 to_float(I16 a) { return {__builtin_convertvector(a.v, FloatLanes)}; }
MR_INLINE I16 as_int(V16 a) { return {(IntLanes)a.v}; }
MR_INLINE V16 as_float(I16 a) { return {(FloatLanes)a.v}; }

// Ordered comparisons (false if either is NaN) and choice by lane: mask ? a : b.
MR_INLINE M16 greater(V16 a, V16 b) { return {a.v > b.v}; }
MR_INLINE M16 less(V16 a, V16 b) { return {b.v > a.v}; }
MR_INLINE V16 select(M16 mask, V16 a, V16 b) {
  return {(FloatLanes)((mask.v & (IntLanes)a.v) | (~mask.v & (IntLanes)b.v))};
}
// One bit a lane, lane 0 lowest.
MR_OUTLINE uint32_t bits_of(const M16& mask) {
  uint32_t bits = 0;
  MR_LANES bits |= static_cast<uint32_t>(mask.v[i] & 1) << i;
  return bits;
}
MR_INLINE M16 mask_first(int n) {
  const IntLanes index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return {index < n};
}

// Integers (wrapping)
MR_INLINE I16 set1_int(int32_t x) { return {IntLanes{} + x}; }
MR_INLINE I16 zero_int() { return {IntLanes{}}; }
MR_INLINE I16 load_int(const void* p) {
  I16 r;
  __builtin_memcpy(&r.v, p, 64);
  return r;
}
MR_INLINE void store_int(void* p, I16 a) { __builtin_memcpy(p, &a.v, 64); }
MR_INLINE I16 add(I16 a, I16 b) { return {(IntLanes)((UintLanes)a.v + (UintLanes)b.v)}; }
MR_INLINE I16 sub(I16 a, I16 b) { return {(IntLanes)((UintLanes)a.v - (UintLanes)b.v)}; }
MR_INLINE I16 max(I16 a, I16 b) { return {a.v > b.v ? a.v : b.v}; }
MR_INLINE I16 and_bits(I16 a, I16 b) { return {a.v & b.v}; }
MR_INLINE I16 or_bits(I16 a, I16 b) { return {a.v | b.v}; }
MR_INLINE I16 xor_bits(I16 a, I16 b) { return {a.v ^ b.v}; }
template <int kBits>
MR_INLINE I16 shift_left(I16 a) {
  return {(IntLanes)((UintLanes)a.v << kBits)};
}
template <int kBits>  // logical
MR_INLINE I16 shift_right(I16 a) {
  return {(IntLanes)((UintLanes)a.v >> kBits)};
}
template <int kBits>  // arithmetic
MR_INLINE I16 shift_right_signed(I16 a) {
  return {a.v >> kBits};
}
MR_INLINE M16 greater(I16 a, I16 b) { return {a.v > b.v}; }
MR_INLINE I16 select(M16 mask, I16 a, I16 b) { return {(mask.v & a.v) | (~mask.v & b.v)}; }
MR_OUTLINE I16 load_u8(const uint8_t* p) {
  I16 r;
  MR_LANES r.v[i] = p[i];
  return r;
}
MR_OUTLINE I16 load_s8(const int8_t* p) {
  I16 r;
  MR_LANES r.v[i] = p[i];
  return r;
}
// Low 8 bits of each lane.
MR_OUTLINE void store_low8(void* p, const I16& a) {
  MR_LANES static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(a.v[i]);
}
// Low 16 bits of each lane.
MR_OUTLINE void store_low16(uint16_t* p, const I16& a) {
  MR_LANES p[i] = static_cast<uint16_t>(a.v[i]);
}
// The 4 bytes at p (any alignment) in every lane.
MR_INLINE I16 broadcast4(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return set1_int(word);
}

// Over all lanes; integers, so the order does not matter.
MR_OUTLINE int32_t reduce_max(const I16& a) {
  int32_t most = a.v[0];
  MR_LANES most = a.v[i] > most ? a.v[i] : most;
  return most;
}
MR_OUTLINE int32_t reduce_add(const I16& a) {
  int32_t sum = 0;
  MR_LANES sum += a.v[i];
  return sum;
}

MR_OUTLINE I16 dot4_lanes(const I16& acc, const I16& codes_u8, const I16& values_s8) {
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(&codes_u8.v);
  const int8_t* values = reinterpret_cast<const int8_t*>(&values_s8.v);
  I16 r = acc;
  MR_LANES {
    for (int j = 0; j < 4; ++j) r.v[i] += codes[4 * i + j] * values[4 * i + j];
  }
  return r;
}

// Dot products of 4 bytes a lane, exact: acc + sum of code (0..255) * value (-127..127).
// kCodeBits says how large codes can be: with 7 or fewer some instruction sets have a faster way.
template <int kCodeBits>
MR_INLINE I16 dot4(I16 acc, I16 codes_u8, I16 values_s8) {
  return dot4_lanes(acc, codes_u8, values_s8);
}

// dot4 with the 4 bytes at p in every lane of values_s8.
template <int kCodeBits>
MR_INLINE I16 dot4_broadcast(I16 acc, I16 codes_u8, const void* p) {
  return dot4<kCodeBits>(acc, codes_u8, broadcast4(p));
}

// Dot products of 4 signed bytes a lane (-127..127 each).
MR_OUTLINE I16 dot4_signed(const I16& acc, const I16& a_s8, const I16& b_s8) {
  const int8_t* a = reinterpret_cast<const int8_t*>(&a_s8.v);
  const int8_t* b = reinterpret_cast<const int8_t*>(&b_s8.v);
  I16 r = acc;
  MR_LANES {
    for (int j = 0; j < 4; ++j) r.v[i] += a[4 * i + j] * b[4 * i + j];
  }
  return r;
}

// The compiler may do as it likes.
MR_INLINE void keep_in_place(I16&) {}

// Bit i: whether byte i of 16 is not 0.
MR_INLINE uint32_t nonzero_bytes(const uint8_t* p) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(p[i] != 0) << i;
  return bits;
}

#undef MR_LANES
#undef MR_OUTLINE

}  // namespace
}  // namespace millrace
