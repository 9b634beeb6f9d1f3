// Conversions of element types, checked exhaustively: halves against the compiler's _Float16, E4M3
// against its definition, roundings against the nearest of all values of the narrow type.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace millrace {
namespace {

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Values at which a rounding to a narrower type can go wrong: random bit patterns of all exponents,
// and the patterns around each half-way point (low bits 0x0fff, 0x1000, 0x1001 and so on).
std::vector<float> hard_floats() {
  std::vector<float> values;
  std::mt19937 random(20240229);
  for (int i = 0; i < 300'000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0x7fffu,
                         0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  return values;
}

TEST(DType, EveryHalfToFloatEqualsTheCompilers) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto bits = static_cast<uint16_t>(half);
    const float ours = f16_to_f32(bits);
    const auto theirs = static_cast<float>(std::bit_cast<_Float16>(bits));
    if (std::isnan(theirs)) {
      // Payload and sign stay, and a signalling NaN becomes quiet: as hardware does it.
      EXPECT_EQ(bits_of(ours), (half & 0x8000u) << 16 | 0x7fc00000u | (half & 0x3ffu) << 13);
    } else {
      ASSERT_EQ(bits_of(ours), bits_of(theirs)) << std::hex << half;
    }
  }
}

TEST(DType, EveryHalfComesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const uint16_t back = f32_to_f16(f16_to_f32(static_cast<uint16_t>(half)));
    const bool is_nan = (half & 0x7fffu) > 0x7c00u;
    ASSERT_EQ(back, is_nan ? half | 0x200u : half) << std::hex << half;
  }
}

TEST(DType, FloatToHalfRoundsAsTheCompiler) {
  for (const float value : hard_floats()) {
    const uint16_t ours = f32_to_f16(value);
    const auto theirs = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    if (std::isnan(value)) {
      ASSERT_GT(ours & 0x7fffu, 0x7c00u) << std::hex << bits_of(value);
    } else {
      ASSERT_EQ(ours, theirs) << std::hex << bits_of(value);
    }
  }
}

TEST(DType, FloatToHalfAtItsEdges) {
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(f32_to_f16(0x1p-24f), 0x0001);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);
  EXPECT_EQ(f32_to_f16(0x1.000002p-25f), 0x0001);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(DType, EveryBfloatComesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = bf16_to_f32(static_cast<uint16_t>(half));
    EXPECT_EQ(bits_of(value), half << 16);
    const bool is_nan = (half & 0x7fffu) > 0x7f80u;
    ASSERT_EQ(f32_to_bf16(value), is_nan ? half | 0x40u : half) << std::hex << half;
  }
}

TEST(DType, FloatToBfloatTakesTheNearestAndTiesToEven) {
  for (const float value : hard_floats()) {
    const uint16_t ours = f32_to_bf16(value);
    if (std::isnan(value)) {
      ASSERT_GT(ours & 0x7fffu, 0x7f80u) << std::hex << bits_of(value);
      continue;
    }
    // The two neighbours among the bfloats, toward zero and away from it; as doubles, in which the
    // one above the largest is 2^128.
    const uint32_t down = bits_of(value) >> 16;
    const auto as_double = [](uint32_t pattern) {
      return (pattern & 0x7fffu) == 0x7f80u
                 ? 0x1p128
                 : std::fabs(static_cast<double>(bf16_to_f32(static_cast<uint16_t>(pattern))));
    };
    if (std::isinf(value)) {
      ASSERT_EQ(ours, down);
      continue;
    }
    const double exact = std::fabs(static_cast<double>(value));
    const double below = exact - as_double(down), above = as_double(down + 1) - exact;
    const uint32_t expected = below < above ? down : above < below ? down + 1 : down + (down & 1u);
    ASSERT_EQ(ours, expected) << std::hex << bits_of(value);
  }
}

TEST(DType, EveryE4M3IsWhatItsDefinitionSays) {
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const float ours = f8e4m3_to_f32(static_cast<uint8_t>(bits));
    const int exponent = static_cast<int>(bits >> 3 & 0xf), mantissa = static_cast<int>(bits & 7);
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(ours)) << bits;
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(static_cast<double>(ours), (bits & 0x80u) != 0 ? -magnitude : magnitude) << bits;
    EXPECT_EQ(std::signbit(ours), (bits & 0x80u) != 0) << bits;
  }
  EXPECT_EQ(f8e4m3_to_f32(0x7e), 448.0f);
}

TEST(DType, RoundToRoundsThereAndBack) {
  EXPECT_EQ(round_to(DType::kF32, 1.0f + 0x1p-23f), 1.0f + 0x1p-23f);
  EXPECT_EQ(round_to(DType::kF16, 1.0f + 0x1p-11f), 1.0f);
  EXPECT_EQ(round_to(DType::kF16, 1.0f + 3 * 0x1p-11f), 1.0f + 0x1p-9f);
  EXPECT_EQ(round_to(DType::kBF16, 1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(round_to(DType::kBF16, 1.0f + 3 * 0x1p-8f), 1.0f + 0x1p-6f);
  EXPECT_EQ(round_to(DType::kBF16, std::numeric_limits<float>::max()), kInfinity);
}

TEST(DTypeDeathTest, RoundToAnIntegerIsABug) {
  EXPECT_DEATH(round_to(DType::kI8, 1.0f), "cannot round to int8");
}

TEST(DType, NamesParseBackAndSizesAreRight) {
  const std::pair<DType, int64_t> table[] = {
      {DType::kF32, 4}, {DType::kF16, 2},  {DType::kBF16, 2},   {DType::kF64, 8},
      {DType::kI8, 1},  {DType::kU8, 1},   {DType::kI16, 2},    {DType::kI32, 4},
      {DType::kI64, 8}, {DType::kBool, 1}, {DType::kF8E4M3, 1},
  };
  for (const auto& [dtype, size] : table) {
    EXPECT_EQ(size_of(dtype), size) << name_of(dtype);
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype) << name_of(dtype);
  }
  EXPECT_EQ(parse_dtype("half"), DType::kF16);
  EXPECT_EQ(parse_dtype("bf16"), DType::kBF16);
  EXPECT_EQ(parse_dtype("float"), DType::kF32);
  EXPECT_EQ(parse_dtype("float31"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

}  // namespace
}  // namespace millrace
