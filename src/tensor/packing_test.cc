#include "tensor/packing.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "tensor/dtype.h"

namespace millrace {
namespace {

// Random bytes; the values may be anything, NaN included, and must come back with the same bits.
std::vector<std::byte> random_bytes(int64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  return bytes;
}

bool same_value(float a, float b) {
  return (a != a && b != b) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

class PackingFormats : public testing::TestWithParam<int> {
 protected:
  WeightFormat format() const { return static_cast<WeightFormat>(GetParam()); }
};

TEST_P(PackingFormats, RowsComeBackExactly) {
  std::mt19937 random(1);
  const FormatInfo& facts = info(format());
  for (const int64_t n : {1, 16, 37}) {
    for (const int64_t blocks : {1, 3, 19}) {
      const int64_t k = facts.block * blocks;
      const int64_t row_size = row_bytes(format(), k);
      const std::vector<std::byte> bytes = random_bytes(n * row_size, random);
      PackedMatrix matrix = *packed_layout(format(), n, k);
      std::vector<std::byte> panels(static_cast<size_t>(matrix.total_bytes()), std::byte{0xff});
      matrix.panels = panels.data();
      const std::vector<PackSource> sources = {{format(), bytes.data(), n}};
      // In two ranges, the later first.
      const int64_t half = matrix.num_panels() / 2;
      pack_panels(sources, matrix, half, matrix.num_panels(),
                  panels.data() + half * matrix.panel_bytes());
      pack_panels(sources, matrix, 0, half, panels.data());
      std::vector<float> expected(static_cast<size_t>(k));
      std::vector<float> got(static_cast<size_t>(k));
      for (int64_t row = 0; row < n; ++row) {
        dequantize_row(format(), bytes.data() + row * row_size, expected.data(), k);
        unpack_panel_row(matrix, row, got.data());
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_TRUE(same_value(got[i], expected[i])) << facts.name << " row " << row << " " << i;
        }
      }
      // Padding outputs are zero.
      for (int64_t row = n; row < matrix.num_panels() * kPanelWidth; ++row) {
        unpack_panel_row(matrix, row, got.data());
        for (const float value : got) ASSERT_EQ(value, 0.0f) << facts.name;
      }
    }
  }
}

TEST_P(PackingFormats, SourcesAreConcatenatedAndRowsChosen) {
  std::mt19937 random(2);
  const int64_t k = info(format()).block * 2;
  const int64_t row_size = row_bytes(format(), k);
  const std::vector<std::byte> first = random_bytes(21 * row_size, random);
  const std::vector<std::byte> second = random_bytes(9 * row_size, random);
  std::vector<int64_t> rows(13);
  for (int64_t i = 0; i < 13; ++i) rows[static_cast<size_t>(i)] = (i * 5 + 3) % 21;
  const std::vector<PackSource> sources = {{format(), first.data(), 13, rows.data()},
                                           {format(), second.data(), 0},
                                           {format(), second.data(), 9}};
  PackedMatrix matrix = *packed_layout(format(), 22, k);
  std::vector<std::byte> panels(static_cast<size_t>(matrix.total_bytes()));
  matrix.panels = panels.data();
  // The second panel alone, then the first.
  pack_panels(sources, matrix, 1, 2, panels.data() + matrix.panel_bytes());
  pack_panels(sources, matrix, 0, 1, panels.data());
  std::vector<float> expected(static_cast<size_t>(k));
  std::vector<float> got(static_cast<size_t>(k));
  for (int64_t row = 0; row < 22; ++row) {
    const std::byte* src = row < 13 ? first.data() + rows[static_cast<size_t>(row)] * row_size
                                    : second.data() + (row - 13) * row_size;
    dequantize_row(format(), src, expected.data(), k);
    unpack_panel_row(matrix, row, got.data());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(same_value(got[i], expected[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackingFormats, testing::Range(0, kNumWeightFormats),
                         [](const auto& info) {
                           return std::string(name_of(static_cast<WeightFormat>(info.param)));
                         });

TEST(Packing, OddBf16BecomesFloat) {
  EXPECT_EQ(packed_layout(WeightFormat::kBF16, 4, 6)->kind, PackedKind::kBF16);
  EXPECT_EQ(packed_layout(WeightFormat::kBF16, 4, 7)->kind, PackedKind::kF32);
  const uint16_t bits[3] = {0x3f80, 0xc000, 0x4040};
  PackedMatrix matrix = *packed_layout(WeightFormat::kBF16, 1, 3);
  std::vector<std::byte> panels(static_cast<size_t>(matrix.total_bytes()));
  matrix.panels = panels.data();
  pack_panels({{WeightFormat::kBF16, reinterpret_cast<const std::byte*>(bits), 1}}, matrix, 0, 1,
              panels.data());
  float row[3];
  unpack_panel_row(matrix, 0, row);
  EXPECT_EQ(row[0], 1.0f);
  EXPECT_EQ(row[1], -2.0f);
  EXPECT_EQ(row[2], 3.0f);
}

TEST(Packing, BrokenBlocksAreAnError) {
  EXPECT_EQ(packed_layout(WeightFormat::kQ4_K, 4, 300).error().message,
            "Q4_K rows of 300 weights are no whole blocks of 256");
}

}  // namespace
}  // namespace millrace
