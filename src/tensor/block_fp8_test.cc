#include "tensor/block_fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tensor/packing.h"

namespace millrace {
namespace {

// A tensor that owns its codes and scales.
struct TestFp8 {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  int64_t rows = 0;
  Fp8Source source;

  TestFp8(int64_t rows_, int64_t columns, std::mt19937& random) : rows(rows_) {
    codes.resize(static_cast<size_t>(rows * columns));
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(random() & 0xff);
      if ((code & 0x7f) == 0x7f) code ^= 1;
    }
    scales.resize(static_cast<size_t>((rows + 127) / 128 * ((columns + 127) / 128)));
    std::normal_distribution<float> normal;
    for (float& scale : scales) scale = 0.01f * normal(random);
    source.tensor.codes = reinterpret_cast<const std::byte*>(codes.data());
    source.tensor.columns = columns;
    source.tensor.scales = reinterpret_cast<const std::byte*>(scales.data());
  }

  // By the definition, written out.
  float weight(int64_t row, int64_t column) const {
    const int64_t columns = source.tensor.columns;
    const uint8_t code = codes[static_cast<size_t>(row * columns + column)];
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    const int64_t across = (columns + 127) / 128;
    const float scale = scales[static_cast<size_t>(row / 128 * across + column / 128)];
    return (code & 0x80 ? -magnitude : magnitude) * scale;
  }
};

struct Packed {
  PackedMatrix matrix;
  std::vector<std::byte> storage;

  Packed(const Fp8Source& source, int64_t n, int64_t k) : matrix(fp8_layout(source, n, k)) {
    storage.assign(static_cast<size_t>(matrix.total_bytes()), std::byte{0xff});
    matrix.panels = storage.data();
    // In two parts, the later one first.
    const int64_t half = matrix.num_panels() / 2;
    pack_fp8_panels(source, matrix, half, matrix.num_panels(),
                    storage.data() + half * matrix.panel_bytes());
    pack_fp8_panels(source, matrix, 0, half, storage.data());
  }

  std::vector<float> row(int64_t index) const {
    std::vector<float> values(static_cast<size_t>(matrix.k));
    unpack_panel_row(matrix, index, values.data());
    return values;
  }
};

TEST(BlockFp8, RowsAreCodesTimesTheScalesOfTheirBlocks) {
  std::mt19937 random(1);
  for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{
           {16, 32}, {130, 288}, {300, 160}, {7, 384}, {5, 100}, {140, 129}}) {
    const TestFp8 test(n, k, random);
    const Packed packed(test.source, n, k);
    EXPECT_EQ(packed.matrix.kind, k % 32 == 0 ? PackedKind::kFp8 : PackedKind::kF32);
    for (int64_t row = 0; row < n; ++row) {
      const std::vector<float> values = packed.row(row);
      for (int64_t i = 0; i < k; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)], test.weight(row, i)) << n << " " << k;
      }
    }
    for (int64_t row = n; row < packed.matrix.num_panels() * kPanelWidth; ++row) {
      for (const float value : packed.row(row)) ASSERT_EQ(value, 0.0f);
    }
  }
}

TEST(BlockFp8, PartsAndTransposedPartsKeepTheirBlocks) {
  std::mt19937 random(2);
  const TestFp8 test(448, 160, random);
  Fp8Source source = test.source;
  source.row_begin = 192;
  const Packed rows(source, 200, 160);
  for (int64_t row = 0; row < 200; ++row) {
    for (int64_t i = 0; i < 160; ++i) {
      ASSERT_EQ(rows.row(row)[static_cast<size_t>(i)], test.weight(192 + row, i));
    }
  }
  source.transposed = true;
  for (const int64_t begin : {192, 200}) {
    source.row_begin = begin;
    const Packed columns(source, 160, 96);
    EXPECT_EQ(columns.matrix.kind, begin % 32 == 0 ? PackedKind::kFp8 : PackedKind::kF32);
    for (int64_t output = 0; output < 160; ++output) {
      const std::vector<float> values = columns.row(output);
      for (int64_t i = 0; i < 96; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)], test.weight(begin + i, output));
      }
    }
  }
}

TEST(BlockFp8, ScalesMayBeBf16) {
  std::mt19937 random(3);
  TestFp8 test(16, 256, random);
  const std::vector<uint16_t> scales = {f32_to_bf16(0.25f), f32_to_bf16(-3.0f)};
  test.scales = {0.25f, -3.0f};
  test.source.tensor.scales = reinterpret_cast<const std::byte*>(scales.data());
  test.source.tensor.scale_format = WeightFormat::kBF16;
  const Packed packed(test.source, 16, 256);
  for (int64_t i = 0; i < 256; ++i) {
    EXPECT_EQ(packed.row(3)[static_cast<size_t>(i)], test.weight(3, i));
  }
}

TEST(BlockFp8, NanCodesStayNan) {
  std::mt19937 random(4);
  for (const uint8_t code : {0x7f, 0xff}) {
    TestFp8 test(20, 96, random);
    test.codes[17 * 96 + 40] = code;
    const Packed packed(test.source, 20, 96);
    const std::vector<float> values = packed.row(17);
    EXPECT_TRUE(std::isnan(values[40]));
    EXPECT_EQ(values[31], test.weight(17, 31)) << "in another block";
    EXPECT_EQ(packed.row(16)[40], test.weight(16, 40)) << "in another output";
    EXPECT_TRUE(std::isnan(fp8_weight(code, 1.0f)));
  }
}

}  // namespace
}  // namespace millrace
