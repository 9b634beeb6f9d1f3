#include "tensor/weight_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace millrace {
namespace {

std::vector<WeightFormat> all_formats() {
  std::vector<WeightFormat> formats;
  formats.reserve(kNumWeightFormats);
  for (int i = 0; i < kNumWeightFormats; ++i) formats.push_back(static_cast<WeightFormat>(i));
  return formats;
}

std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

TEST(WeightFormat, EqualsTheGoldenValuesBitForBit) {
  for (const WeightFormat format : all_formats()) {
    if (format == WeightFormat::kF32) continue;
    const FormatInfo& facts = info(format);
    const std::string path =
        std::string(MILLRACE_TEST_DATA "/formats/") + std::string(facts.name) + ".bin";
    const std::vector<std::byte> file = read_bytes(path);
    const int64_t n = facts.block == 1 ? 96 : 3 * facts.block;
    const int64_t packed = row_bytes(format, n);
    ASSERT_EQ(static_cast<int64_t>(file.size()), packed + 4 * n) << path;
    std::vector<float> expected(static_cast<size_t>(n));
    std::memcpy(expected.data(), file.data() + packed, static_cast<size_t>(4 * n));
    std::vector<float> actual(static_cast<size_t>(n));
    dequantize_row(format, file.data(), actual.data(), n);
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
          << facts.name << " weight " << i << ": " << actual[i] << " against " << expected[i];
    }
  }
}

TEST(WeightFormat, UnpackedPartsGiveTheSameBits) {
  std::mt19937 random(3);
  for (const WeightFormat format : all_formats()) {
    const FormatInfo& facts = info(format);
    if (!facts.quantized) continue;
    const int64_t n = 40 * facts.block;
    std::vector<std::byte> row(static_cast<size_t>(row_bytes(format, n)));
    for (std::byte& b : row) b = static_cast<std::byte>(random());
    std::vector<float> values(static_cast<size_t>(n));
    std::vector<uint8_t> codes(static_cast<size_t>(n));
    std::vector<float> scales(static_cast<size_t>(n / facts.group));
    std::vector<float> mins(scales.size());
    dequantize_row(format, row.data(), values.data(), n);
    unpack_row(format, row.data(), n, codes.data(), scales.data(),
               facts.has_min ? mins.data() : nullptr);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t g = i / static_cast<size_t>(facts.group);
      ASSERT_LT(codes[i], 1 << facts.bits);
      float value = scales[g] * static_cast<float>(codes[i] - facts.offset);
      if (facts.has_min) value = value + mins[g];
      if (std::isnan(value) && std::isnan(values[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(values[i])) << facts.name;
    }
  }
}

TEST(WeightFormat, ScalesFitHalvesWhereTheTableSaysSo) {
  std::mt19937 random(4);
  for (const WeightFormat format : all_formats()) {
    const FormatInfo& facts = info(format);
    if (!facts.quantized || !facts.scales_fit_f16) continue;
    std::vector<std::byte> block(static_cast<size_t>(facts.bytes));
    for (std::byte& b : block) b = static_cast<std::byte>(random() & 0x3f);
    std::vector<uint8_t> codes(static_cast<size_t>(facts.block));
    float scale = 0;
    float min = 0;
    unpack_row(format, block.data(), facts.block, codes.data(), &scale, &min);
    EXPECT_EQ(scale, std::ldexp(std::round(std::ldexp(scale, 24)), -24)) << facts.name;
  }
}

TEST(WeightFormat, NamesRoundTripAndRowsHaveTheirSize) {
  for (const WeightFormat format : all_formats()) {
    EXPECT_EQ(parse_weight_format(name_of(format)), format);
  }
  EXPECT_EQ(parse_weight_format("q4_k"), WeightFormat::kQ4_K);
  EXPECT_EQ(parse_weight_format("Q2_K"), std::nullopt);
  EXPECT_EQ(row_bytes(WeightFormat::kQ4_1, 576), 360);
  EXPECT_EQ(row_bytes(WeightFormat::kF16, 3), 6);
}

}  // namespace
}  // namespace millrace
