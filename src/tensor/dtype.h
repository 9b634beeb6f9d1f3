// Element types and their exact conversions to fp32; rounding from fp32 is to nearest, ties to
// even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace millrace {

// Element types of checkpoints, activations and caches. Quantised block formats: weight_format.h.
enum class DType : uint8_t { kF32, kF16, kBF16, kF64, kI8, kU8, kI16, kI32, kI64, kBool, kF8E4M3 };

// Bytes of one element.
int64_t size_of(DType dtype);

// "float32", "float16", "bfloat16", "int8", ... as in --dtype and config.json.
std::string_view name_of(DType dtype);

// Parses "float32" / "float" / "f32", "float16" / "half" / "f16", "bfloat16" / "bf16", ...
std::optional<DType> parse_dtype(std::string_view name);

inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// To nearest even; NaN stays NaN (quiet), overflow becomes infinity.
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE half to float, exact for every value, denormals included.
float f16_to_f32(uint16_t bits);

// To nearest even; denormal halves are produced, overflow becomes infinity, NaN stays NaN.
uint16_t f32_to_f16(float value);

// E4M3 (no infinities; 0x7f and 0xff are NaN) to float, exact.
float f8e4m3_to_f32(uint8_t bits);

// Rounds to `dtype` and back: kF32 is the identity, kF16 and kBF16 round. Others: internal error.
float round_to(DType dtype, float value);

}  // namespace millrace
