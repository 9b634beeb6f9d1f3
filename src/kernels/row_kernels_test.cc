// Every instruction set's small kernels against reference_ops.h, byte for byte.
#include "kernels/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/math.h"
#include "kernels/reference_ops.h"

namespace millrace {
namespace {

constexpr DType kActivationTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

std::vector<float> random_values(size_t count, uint32_t seed, DType dtype = DType::kF32) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> values(count);
  for (float& value : values) value = round_to(dtype, normal(generator));
  return values;
}

void expect_same_bytes(const void* actual, const void* expected, size_t bytes, const char* what) {
  ASSERT_EQ(std::memcmp(actual, expected, bytes), 0) << what;
}

class RowKernelsTest : public ::testing::TestWithParam<Isa> {
 protected:
  const RowKernels& kernels() const { return row_kernels(GetParam()); }
};

TEST_P(RowKernelsTest, RunsTheBuildThatWasAskedFor) {
  const std::string_view expected = GetParam() == Isa::kAvx512Vnni ? "avx512" : name_of(GetParam());
  EXPECT_EQ(kernels().name, expected);
}

TEST_P(RowKernelsTest, RmsNorm) {
  for (const DType dtype : kActivationTypes) {
    for (const int64_t n : {1, 5, 15, 16, 17, 64, 80, 576, 2048}) {
      const int64_t rows = 3;
      const int64_t stride = n + 3;
      const auto x = random_values(static_cast<size_t>(rows * stride), 1, dtype);
      const auto weight = random_values(static_cast<size_t>(n), 2);
      std::vector<float> expected(x.size(), 7.0f);
      std::vector<float> actual(x.size(), 7.0f);
      RmsNormArgs args{.x = x.data(),
                       .x_stride = stride,
                       .weight = weight.data(),
                       .out = expected.data(),
                       .out_stride = stride,
                       .n = n,
                       .eps = 1e-5f,
                       .dtype = dtype};
      reference_rms_norm(args, 0, rows);
      args.out = actual.data();
      kernels().rms_norm(args, 0, 1);
      kernels().rms_norm(args, 1, rows);
      expect_same_bytes(actual.data(), expected.data(), expected.size() * 4, "norm");
    }
  }
}

TEST_P(RowKernelsTest, RmsNormOfHeadsInPlace) {
  const auto x = random_values(4 * 200, 3);
  const auto weight = random_values(24, 4);
  auto expected = x;
  auto actual = x;
  RmsNormArgs args{.x = expected.data(),
                   .x_stride = 200,
                   .weight = weight.data(),
                   .out = expected.data(),
                   .out_stride = 200,
                   .num_groups = 5,
                   .group_stride = 24,
                   .n = 24,
                   .eps = 1e-6f};
  reference_rms_norm(args, 0, 4);
  args.x = args.out = actual.data();
  kernels().rms_norm(args, 0, 4);
  expect_same_bytes(actual.data(), expected.data(), expected.size() * 4, "norm of heads");
}

TEST_P(RowKernelsTest, LayerNorm) {
  for (const DType dtype : kActivationTypes) {
    for (const int64_t n : {1, 5, 16, 17, 32, 80, 128}) {
      const int64_t rows = 3;
      const int64_t stride = n + 2;
      const auto x = random_values(static_cast<size_t>(rows * stride), 21);
      const auto weight = random_values(static_cast<size_t>(n), 22);
      const auto bias = random_values(static_cast<size_t>(n), 23);
      std::vector<float> expected(x.size(), 7.0f);
      std::vector<float> actual(x.size(), 7.0f);
      LayerNormArgs args{.x = x.data(),
                         .x_stride = stride,
                         .weight = weight.data(),
                         .bias = bias.data(),
                         .out = expected.data(),
                         .out_stride = stride,
                         .n = n,
                         .eps = 1e-6f,
                         .dtype = dtype};
      reference_layer_norm(args, 0, rows);
      args.out = actual.data();
      kernels().layer_norm(args, 0, 2);
      kernels().layer_norm(args, 2, rows);
      expect_same_bytes(actual.data(), expected.data(), expected.size() * 4, "layer norm");
    }
  }
}

TEST_P(RowKernelsTest, Round) {
  for (const DType dtype : kActivationTypes) {
    for (const float factor : {1.0f, 0.4f}) {
      const auto x = random_values(3 * 40, 24);
      auto actual = x;
      kernels().round({.x = actual.data(), .stride = 40, .n = 37, .factor = factor, .dtype = dtype},
                      0, 3);
      for (size_t i = 0; i < x.size(); ++i) {
        const float expected = i % 40 < 37 ? round_to(dtype, x[i] * factor) : x[i];
        ASSERT_EQ(actual[i], expected) << i;
      }
    }
  }
}

TEST_P(RowKernelsTest, ExpertCombine) {
  for (const DType dtype : kActivationTypes) {
    for (const bool has_shared : {false, true}) {
      // Experts of one leaf, of several, fewer and more experts than leaves.
      for (const auto& [num_experts, chosen] :
           {std::pair<int, std::vector<int32_t>>{8, {0, 7, 3, 4}},
            {160, {0, 1, 9, 10, 11, 158, 159, 20, 40, 41}},
            {40, {1, 2}},
            {5, {0, 1, 2, 3, 4, 0, 2, 4, 1, 3}}}) {
        constexpr int64_t kTokens = 2;
        constexpr int64_t kColumns = 53;
        const int k = static_cast<int>(chosen.size()) / 2;
        std::vector<int32_t> experts = chosen;
        for (int t = 0; t < kTokens; ++t) {
          std::sort(experts.begin() + t * k, experts.begin() + (t + 1) * k);
        }
        std::vector<int32_t> rows(chosen.size());
        for (size_t i = 0; i < rows.size(); ++i)
          rows[i] = static_cast<int32_t>(rows.size() - 1 - i);
        const auto weights = random_values(chosen.size(), 25);
        const auto out = random_values(chosen.size() * kColumns, 26);
        const auto shared = random_values(kTokens * kColumns, 27);
        auto expected = random_values(kTokens * 60, 28, dtype);
        auto actual = expected;
        ExpertCombineArgs args{.expert_out = out.data(),
                               .experts = experts.data(),
                               .weights = weights.data(),
                               .assignments = rows.data(),
                               .experts_per_token = k,
                               .num_experts = num_experts,
                               .shared = has_shared ? shared.data() : nullptr,
                               .residual = expected.data(),
                               .residual_stride = 60,
                               .n = kColumns,
                               .dtype = dtype};
        for (int64_t t = 0; t < kTokens; ++t) reference_expert_combine(args, t);
        args.residual = actual.data();
        for (int64_t t = 0; t < kTokens; ++t) {
          kernels().expert_combine(args, t, 0, 32);
          kernels().expert_combine(args, t, 32, kColumns);
        }
        expect_same_bytes(actual.data(), expected.data(), expected.size() * 4, "combine");
      }
    }
  }
}

TEST_P(RowKernelsTest, Rope) {
  for (const DType dtype : kActivationTypes) {
    for (const bool interleaved : {false, true}) {
      for (const auto& [head_dim, rotary_dim] :
           {std::pair{64, 64}, {16, 16}, {80, 40}, {128, 128}, {5, 4}, {96, 72}}) {
        const int heads = 3;
        const int64_t stride = heads * head_dim + 2;
        RopeParameters parameters;
        parameters.rotary_dim = rotary_dim;
        const auto inv_freq = rope_inverse_frequencies(parameters);
        const std::vector<int32_t> positions{0, 1, 77, 5000};
        std::vector<float> cos(positions.size() * inv_freq.size());
        std::vector<float> sin(cos.size());
        rope_cos_sin(inv_freq, 1.25f, positions, cos.data(), sin.data());
        const auto x = random_values(static_cast<size_t>(stride * 4), 5, dtype);
        auto expected = x;
        auto actual = x;
        RopeArgs args{.x = expected.data(),
                      .row_stride = stride,
                      .num_heads = heads,
                      .head_dim = head_dim,
                      .rotary_dim = rotary_dim,
                      .interleaved = interleaved,
                      .cos = cos.data(),
                      .sin = sin.data(),
                      .dtype = dtype};
        reference_rope(args, 0, 4);
        args.x = actual.data();
        kernels().rope(args, 0, 3);
        kernels().rope(args, 3, 4);
        expect_same_bytes(actual.data(), expected.data(), expected.size() * 4, "rope");
      }
    }
  }
}

TEST_P(RowKernelsTest, SumIsThatOfSlotsAndTheTree) {
  for (const int64_t n : {0, 1, 15, 16, 17, 160, 257}) {
    const auto x = random_values(static_cast<size_t>(n), 6);
    float slots[16] = {};
    for (int64_t i = 0; i < n; ++i) slots[i % 16] += x[static_cast<size_t>(i)];
    const float expected = reference_tree16(slots);
    const float actual = kernels().sum(x.data(), n);
    expect_same_bytes(&actual, &expected, sizeof expected, "sum");
  }
}

// A cache in memory filled with a pattern, so that writes outside the rows show.
struct TestCache {
  TestCache(const KvLayout& layout, int64_t blocks)
      : memory(static_cast<size_t>(layout.block_bytes() * blocks) + 64, std::byte{0x5a}) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    view = kv_layer_view(layout, 0, memory.data() + (64 - address % 64) % 64);
    bytes = static_cast<size_t>(layout.block_bytes() * blocks);
  }
  std::vector<std::byte> memory;
  KvLayerView view;
  size_t bytes = 0;
};

TEST_P(RowKernelsTest, KvWrite) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    for (const int head_dim : {5, 16, 64, 80}) {
      const KvLayout layout{dtype, 32, 3, head_dim};
      const int64_t stride = 3 * head_dim + 1;
      auto k = random_values(static_cast<size_t>(6 * stride), 8);
      auto v = random_values(static_cast<size_t>(6 * stride), 9);
      for (int i = 0; i < head_dim; ++i) k[static_cast<size_t>(stride + i)] = 0;
      v[1] = 1e30f;
      v[static_cast<size_t>(2 * stride)] = std::numeric_limits<float>::infinity();
      k[static_cast<size_t>(3 * stride + 2)] = std::nanf("");
      k[static_cast<size_t>(4 * stride + 2)] = 1e-43f;
      const std::vector<int64_t> slots{70, 3, -1, 4, 127, 64};
      TestCache expected(layout, 4);
      TestCache actual(layout, 4);
      KvWriteArgs args{k.data(), stride, v.data(), stride, slots.data(), expected.view};
      reference_kv_write(args, 0, 6);
      args.cache = actual.view;
      kernels().kv_write(args, 0, 4);
      kernels().kv_write(args, 4, 6);
      expect_same_bytes(actual.view.k, expected.view.k, actual.bytes, "cache");
    }
  }
}

// Runs of tokens that fill groups of 16 positions, among others.
TEST_P(RowKernelsTest, KvWriteOfWholeGroups) {
  std::vector<int64_t> slots;
  const auto add = [&slots](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) slots.push_back(first + i);
  };
  add(8, 24);   // half a group, then one
  add(64, 31);  // one, then nearly one
  add(-1, 1);
  add(96, 16);
  add(48, 8);
  add(57, 7);  // a gap in the group
  const auto tokens = static_cast<int64_t>(slots.size());
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    for (const int head_dim : {5, 64, 80}) {
      const KvLayout layout{dtype, 32, 3, head_dim};
      const int64_t stride = 3 * head_dim + 1;
      const auto k = random_values(static_cast<size_t>(tokens * stride), 8);
      const auto v = random_values(static_cast<size_t>(tokens * stride), 9);
      TestCache expected(layout, 4);
      TestCache actual(layout, 4);
      KvWriteArgs args{k.data(), stride, v.data(), stride, slots.data(), expected.view};
      reference_kv_write(args, 0, tokens);
      args.cache = actual.view;
      kernels().kv_write(args, 0, tokens);
      expect_same_bytes(actual.view.k, expected.view.k, actual.bytes, "cache");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, RowKernelsTest,
                         ::testing::ValuesIn(available_isas(detect_cpu_features())),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(KvWrite, Int8CodesAreWithinHalfAStep) {
  const KvLayout layout{DType::kI8, 16, 1, 40};
  const auto k = random_values(40, 10);
  const auto v = random_values(40, 11);
  const int64_t slot = 5;
  TestCache cache(layout, 1);
  reference_kv_write({k.data(), 40, v.data(), 40, &slot, cache.view}, 0, 1);
  for (int d = 0; d < 40; ++d) {
    const auto* codes = reinterpret_cast<const int8_t*>(cache.view.k);
    const float scale = cache.view.k_scale[5];
    EXPECT_NEAR(codes[d * 16 + 5] * scale, k[static_cast<size_t>(d)], scale * 0.5001f);
    const auto* values = reinterpret_cast<const int8_t*>(cache.view.v);
    const float v_scale = cache.view.v_scale[5];
    EXPECT_NEAR(values[5 * 40 + d] * v_scale, v[static_cast<size_t>(d)], v_scale * 0.5001f);
  }
}

TEST(RmsNorm, IsTheMeanSquareNorm) {
  const auto x = random_values(100, 12);
  const auto weight = random_values(100, 13);
  std::vector<float> out(100);
  const RmsNormArgs args{.x = x.data(),
                         .x_stride = 100,
                         .weight = weight.data(),
                         .out = out.data(),
                         .out_stride = 100,
                         .n = 100,
                         .eps = 1e-3f};
  reference_rms_norm(args, 0, 1);
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(out[i], x[i] / std::sqrt(sum / 100 + 1e-3) * weight[i], 2e-6);
  }
}

}  // namespace
}  // namespace millrace
