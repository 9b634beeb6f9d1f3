#include "tensor/int4_groups.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/packing.h"

namespace millrace {
namespace {

// Codes, zero points and scales of a matrix, and the words that each packing makes of them.
struct TestInt4 {
  int64_t n;
  int64_t k;
  int group;
  std::vector<int> codes;     // [n][k]
  std::vector<int> zeros;     // [n][groups]
  std::vector<float> scales;  // [n][groups], halves

  int64_t groups() const { return (k + group - 1) / group; }

  TestInt4(int64_t n_, int64_t k_, int group_, std::mt19937& random) : n(n_), k(k_), group(group_) {
    for (int64_t i = 0; i < n * k; ++i) codes.push_back(static_cast<int>(random() % 16));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n * groups(); ++i) {
      zeros.push_back(static_cast<int>(1 + random() % 15));
      scales.push_back(bf16_to_f32(f32_to_bf16(0.01f * normal(random))));
    }
  }

  float weight(int64_t output, int64_t input, bool symmetric) const {
    const auto at = static_cast<size_t>(output * groups() + input / group);
    const int zero = symmetric ? 8 : zeros[at];
    return scales[at] * static_cast<float>(codes[static_cast<size_t>(output * k + input)] - zero);
  }
};

struct Words {
  std::vector<uint32_t> codes;
  std::vector<uint32_t> zeros;
  std::vector<std::byte> scales;
};

void put(std::vector<uint32_t>& words, int64_t word, int64_t nibble, int value) {
  words[static_cast<size_t>(word)] |= static_cast<uint32_t>(value) << (4 * nibble);
}

Words words_of(const TestInt4& test, Int4Packing packing, WeightFormat scale_format,
               int zero_offset) {
  constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  Words words;
  words.codes.resize(static_cast<size_t>(test.n * test.k / 8));
  words.zeros.resize(static_cast<size_t>(test.n * test.groups() / 8));
  const auto size = static_cast<size_t>(row_bytes(scale_format, 1));
  words.scales.resize(static_cast<size_t>(test.n * test.groups()) * size);
  const auto code = [&](int64_t o, int64_t i) {
    return test.codes[static_cast<size_t>(o * test.k + i)];
  };
  const auto zero = [&](int64_t o, int64_t g) {
    return test.zeros[static_cast<size_t>(o * test.groups() + g)] - zero_offset;
  };
  for (int64_t o = 0; o < test.n; ++o) {
    for (int64_t i = 0; i < test.k; ++i) {
      if (packing == Int4Packing::kGptq) put(words.codes, i / 8 * test.n + o, i % 8, code(o, i));
      if (packing == Int4Packing::kCompressedTensors) {
        put(words.codes, o * test.k / 8 + i / 8, i % 8, code(o, i));
      }
    }
    for (int64_t g = 0; g < test.groups(); ++g) {
      if (packing == Int4Packing::kGptq)
        put(words.zeros, g * test.n / 8 + o / 8, o % 8, zero(o, g));
      if (packing == Int4Packing::kCompressedTensors) {
        put(words.zeros, o / 8 * test.groups() + g, o % 8, zero(o, g));
      }
      const bool rows = packing == Int4Packing::kCompressedTensors;
      const auto at = static_cast<size_t>(rows ? o * test.groups() + g : g * test.n + o);
      const float scale = test.scales[static_cast<size_t>(o * test.groups() + g)];
      const uint16_t bits =
          scale_format == WeightFormat::kF16 ? f32_to_f16(scale) : f32_to_bf16(scale);
      if (size == 4) std::memcpy(words.scales.data() + 4 * at, &scale, 4);
      if (size == 2) std::memcpy(words.scales.data() + 2 * at, &bits, 2);
    }
  }
  if (packing == Int4Packing::kAwq) {
    for (int64_t c = 0; c < test.n / 8; ++c) {
      for (int j = 0; j < 8; ++j) {
        const int64_t o = 8 * c + kAwqOrder[j];
        for (int64_t i = 0; i < test.k; ++i) put(words.codes, i * test.n / 8 + c, j, code(o, i));
        for (int64_t g = 0; g < test.groups(); ++g) {
          put(words.zeros, g * test.n / 8 + c, j, zero(o, g));
        }
      }
    }
  }
  return words;
}

struct Case {
  Int4Packing packing;
  WeightFormat scales;
  bool symmetric;
  int zero_offset;
};

class Int4Groups : public testing::TestWithParam<Case> {};

TEST_P(Int4Groups, RowsAreCodesLessZerosTimesScales) {
  const Case& format = GetParam();
  std::mt19937 random(5);
  for (const auto& [n, k, group] : std::vector<std::tuple<int64_t, int64_t, int>>{
           {16, 32, 32}, {40, 256, 128}, {24, 160, 64}}) {
    const TestInt4 test(n, k, group, random);
    const Words words = words_of(test, format.packing, format.scales, format.zero_offset);
    Int4Tensor tensor = {.packing = format.packing,
                         .codes = reinterpret_cast<const std::byte*>(words.codes.data()),
                         .zeros = reinterpret_cast<const std::byte*>(words.zeros.data()),
                         .scales = words.scales.data(),
                         .scale_format = format.scales,
                         .zero_offset = format.zero_offset,
                         .n = n,
                         .k = k,
                         .group = group};
    if (format.symmetric) tensor.zeros = nullptr;
    // All rows, and from a row on that begins no panel and no word.
    for (const int64_t begin : {0, 5}) {
      PackedMatrix matrix = int4_layout(tensor, n - begin);
      EXPECT_EQ(matrix.quant.has_min, !format.symmetric);
      std::vector<std::byte> storage(static_cast<size_t>(matrix.total_bytes()), std::byte{0xff});
      matrix.panels = storage.data();
      pack_int4_panels(tensor, begin, matrix, 1, matrix.num_panels(),
                       storage.data() + matrix.panel_bytes());
      pack_int4_panels(tensor, begin, matrix, 0, 1, storage.data());
      std::vector<float> row(static_cast<size_t>(k));
      for (int64_t o = 0; o < n - begin; ++o) {
        unpack_panel_row(matrix, o, row.data());
        for (int64_t i = 0; i < k; ++i) {
          ASSERT_EQ(row[static_cast<size_t>(i)], test.weight(begin + o, i, format.symmetric))
              << n << " " << k << " output " << o << " input " << i;
        }
      }
      for (int64_t o = n - begin; o < matrix.num_panels() * kPanelWidth; ++o) {
        unpack_panel_row(matrix, o, row.data());
        for (const float value : row) ASSERT_EQ(value, 0.0f);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Int4Groups,
    testing::Values(Case{Int4Packing::kGptq, WeightFormat::kF16, true, 1},
                    Case{Int4Packing::kGptq, WeightFormat::kF16, false, 1},
                    Case{Int4Packing::kGptq, WeightFormat::kF16, false, 0},
                    Case{Int4Packing::kAwq, WeightFormat::kF16, false, 0},
                    Case{Int4Packing::kAwq, WeightFormat::kF16, true, 0},
                    Case{Int4Packing::kCompressedTensors, WeightFormat::kBF16, true, 0},
                    Case{Int4Packing::kCompressedTensors, WeightFormat::kF32, true, 0},
                    Case{Int4Packing::kCompressedTensors, WeightFormat::kF16, false, 0},
                    Case{Int4Packing::kCompressedTensors, WeightFormat::kBF16, false, 0}));

}  // namespace
}  // namespace millrace
