// The numeric class bf16: matmuls, by dot products and by fma, equal to chains of the reference's
// dot products in every tile height and layout, and these to the instruction.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iterator>
#include <random>

#include "base/buffer.h"
#include "base/cpu.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/matmul_test_support.h"
#include "kernels/matmul_variants.h"
#include "kernels/reference_ops.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace millrace {
namespace {

// The instruction in its narrowest form.
[[gnu::target("avx512f,avx512vl,avx512bf16")]] float dot_of_instruction(float acc, Bf16Pair a,
                                                                        Bf16Pair b) {
  const auto whole = [](Bf16Pair pair) {
    return static_cast<int>(static_cast<uint32_t>(pair.first) | static_cast<uint32_t>(pair.second)
                                                                    << 16);
  };
  return _mm_cvtss_f32(_mm_dpbf16_ps(_mm_set_ss(acc), (__m128bh)_mm_cvtsi32_si128(whole(a)),
                                     (__m128bh)_mm_cvtsi32_si128(whole(b))));
}

// Random patterns of bits: all exponents, denormals, infinities and NaN among them.
TEST(ReferenceBf16Dot, IsThatOfTheInstruction) {
  if (!has_bf16_class(Isa::kAvx512Vnni, detect_cpu_features()))
    GTEST_SKIP() << "this CPU has no bf16 dot products";
  std::mt19937 random(5);
  const auto special = [&](uint32_t bits) -> uint32_t {
    constexpr uint32_t kBits[] = {0, 0x8000, 1, 0x8040, 0x7f80, 0xff80, 0x7fc1, 0x0080, 0x7f7f};
    return bits % 16 == 0 ? kBits[random() % std::size(kBits)] : bits >> 8 & 0xffff;
  };
  for (int i = 0; i < 200000; ++i) {
    const auto half = [&] {
      return static_cast<uint16_t>(special(static_cast<uint32_t>(random())));
    };
    const Bf16Pair a{half(), half()};
    const Bf16Pair b{half(), half()};
    const uint32_t acc_bits =
        special(static_cast<uint32_t>(random())) << 16 | static_cast<uint32_t>(random() & 0xffff);
    const float acc = std::bit_cast<float>(acc_bits);
    const float expected = dot_of_instruction(acc, a, b);
    const float actual = reference_bf16_dot(acc, a, b);
    if (std::isnan(expected) && std::isnan(actual)) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected))
        << acc << " + " << bf16_to_f32(a.second) << " * " << bf16_to_f32(b.second) << " + "
        << bf16_to_f32(a.first) << " * " << bf16_to_f32(b.first);
  }
}

// Sums about the smallest normal number.
TEST(ReferenceBf16Dot, IsThatOfTheInstructionNextToDenormals) {
  if (!has_bf16_class(Isa::kAvx512Vnni, detect_cpu_features()))
    GTEST_SKIP() << "this CPU has no bf16 dot products";
  std::mt19937 random(6);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    const auto half = [&](int exponent) {
      const float mantissa = 1.0f + static_cast<float>(random() % 128) / 128.0f;
      return f32_to_bf16(std::ldexp((random() & 1) != 0 ? mantissa : -mantissa, exponent));
    };
    const int small = -75 - static_cast<int>(random() % 4);
    const Bf16Pair a{half(-75), half(small)};
    const Bf16Pair b{half(small), half(-74)};
    const float acc = std::bit_cast<float>((bits & 0x80000000u) | (0x00800000u + (bits & 3)));
    const float expected = dot_of_instruction(acc, a, b);
    const float actual = reference_bf16_dot(acc, a, b);
    ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected))
        << acc << " + " << bf16_to_f32(a.second) << " * " << bf16_to_f32(b.second) << " + "
        << bf16_to_f32(a.first) << " * " << bf16_to_f32(b.first);
  }
}

// One output: a chain over pairs of [begin, end).
float chain_bf16(const uint16_t* weight, const float* x, int64_t begin, int64_t end) {
  float acc = 0;
  for (int64_t i = begin; i < end; i += 2) {
    acc = reference_bf16_dot(acc, {f32_to_bf16(x[i]), f32_to_bf16(x[i + 1])},
                             {weight[i], weight[i + 1]});
  }
  return acc;
}

// The outputs of every row and the leaves, or without leaves a chain each.
std::vector<float> expected_outputs(const TestTensor& tensor, const std::vector<float>& x,
                                    int64_t rows, const LeafCuts* leaves) {
  const int64_t k = tensor.k;
  std::vector<float> expected;
  for (int64_t row = 0; row < rows; ++row) {
    const float* values = x.data() + row * k;
    for (int64_t o = 0; o < tensor.n; ++o) {
      const auto* weights = reinterpret_cast<const uint16_t*>(tensor.bytes.data() + o * k * 2);
      float sums[kNumLeaves];
      for (int leaf = 0; leaf < kNumLeaves && leaves != nullptr; ++leaf) {
        sums[leaf] = chain_bf16(weights, values, leaves->begin(leaf), leaves->end(leaf));
      }
      expected.push_back(leaves != nullptr ? reference_leaf_tree(sums)
                                           : chain_bf16(weights, values, 0, k));
    }
  }
  return expected;
}

void run_matmul(const MatmulArgs& args) {
  const MatmulPlan plan = plan_matmul(args, 2);
  std::vector<std::byte> scratch(static_cast<size_t>(plan.scratch_bytes), std::byte{0xff});
  matmul_run_items(args, plan, 0, plan.num_items, scratch.data());
}

std::vector<float> outputs(const MatmulKernels& kernels, const TestMatrix& weight,
                           const std::vector<float>& x, int64_t rows, const LeafCuts* leaves) {
  const int64_t n = weight.matrix.n;
  const int64_t k = weight.matrix.k;
  std::vector<float> out(static_cast<size_t>(rows * n));
  MatmulArgs args;
  args.kernels = &kernels;
  args.weight = &weight.matrix;
  args.input = packed_activations(kernels, kernels.bf16->activations, rows, k, nullptr);
  Buffer packed = *Buffer::allocate(static_cast<size_t>(args.input.bytes()));
  args.input.data = packed.data();
  pack_activations(kernels, x.data(), k, 0, rows, args.input);
  args.leaves = leaves;
  args.out = out.data();
  args.out_stride = n;
  run_matmul(args);
  if (n % 2 != 0) return out;
  expect_packed_outputs(args, out.data(), n, 2);
  if (leaves == nullptr) {
    std::vector<float> gated(out.size());
    args.out = gated.data();
    args.up = &weight.matrix;
    args.epilogue = Epilogue::kSiluMul;
    run_matmul(args);
    expect_packed_outputs(args, gated.data(), n, 2);
  }
  return out;
}

// The class by dot products and by fma, as far as this CPU has what they take.
std::vector<MatmulKernels> kernels_of_class() {
  const CpuFeatures features = detect_cpu_features();
  std::vector<MatmulKernels> all;
  if (!features.avx512) return all;
  MatmulKernels kernels = matmul_kernels(Isa::kAvx512, false);
  kernels.bf16 = &bf16_kernels_avx512();
  all.push_back(kernels);
  if (features.avx512_bf16) {
    kernels.bf16 = &bf16_kernels_avx512bf16();
    all.push_back(kernels);
  }
  return all;
}

class MatmulBf16 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels_.empty()) GTEST_SKIP() << "this CPU has no AVX-512";
  }

  // All row counts and layouts, with activations that are `scale` times those of other tests.
  void expect_equal(float scale) {
    std::mt19937 random(1);
    for (const int64_t k : {int64_t{2}, int64_t{190}, int64_t{1100}}) {
      const TestTensor tensor = random_tensor(WeightFormat::kBF16, 38, k, random);
      const TestMatrix weight = pack(tensor);
      const LeafCuts cuts = LeafCuts::of(k / 2, 2);
      std::vector<int64_t> row_counts = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 40};
      // One more than a block has, where that is soon computed.
      row_counts.push_back(k == 190 ? kMostBlockRows + 1 : 130);
      for (const int64_t rows : row_counts) {
        std::vector<float> x = random_floats(rows * k, random);
        for (float& value : x) value *= scale;
        for (const LeafCuts* leaves : {&cuts, static_cast<const LeafCuts*>(nullptr)}) {
          const std::vector<float> expected = expected_outputs(tensor, x, rows, leaves);
          for (const MatmulKernels& kernels : kernels_) {
            const std::vector<float> actual = outputs(kernels, weight, x, rows, leaves);
            for (size_t i = 0; i < expected.size(); ++i) {
              ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
                  << kernels.bf16->name << ", rows " << rows << ", k " << k << ", output " << i
                  << ": " << actual[i] << ", expected " << expected[i];
            }
          }
        }
      }
    }
  }

  const std::vector<MatmulKernels> kernels_ = kernels_of_class();
};

TEST_F(MatmulBf16, EqualsChainsOfTheReference) { expect_equal(1.0f); }

// Denormals count as zero in the chains, and as they are in the tree and after the matmul.
TEST_F(MatmulBf16, EqualsChainsOfTheReferenceAmongDenormals) {
  const unsigned mode = _mm_getcsr() & 0xffc0;  // without the flags of what has happened
  expect_equal(0x1p-124f);
  expect_equal(0x1p-127f);
  EXPECT_EQ(_mm_getcsr() & 0xffc0, mode);
}

// The smallest normal number less a quarter of the last place of those below it.
TEST_F(MatmulBf16, CountsWhatRoundsUpToTheSmallestNormalNumberAsZero) {
  TestTensor tensor{WeightFormat::kBF16, 1, 2, {}};
  const std::vector<float> x = {0x1p-75f, 0x1p-63f};
  for (const float weight : {-0x1p-75f, 0x1p-63f}) {
    const uint16_t half = f32_to_bf16(weight);
    tensor.bytes.push_back(static_cast<std::byte>(half & 0xff));
    tensor.bytes.push_back(static_cast<std::byte>(half >> 8));
  }
  const TestMatrix weight = pack(tensor);
  const float expected =
      chain_bf16(reinterpret_cast<const uint16_t*>(tensor.bytes.data()), x.data(), 0, 2);
  for (const MatmulKernels& kernels : kernels_) {
    EXPECT_EQ(outputs(kernels, weight, x, 1, nullptr)[0], expected) << kernels.bf16->name;
  }
}

// What a CPU gets is one of the two, by who made it.
TEST_F(MatmulBf16, IsChosenByTheCpu) {
  const CpuFeatures features = detect_cpu_features();
  if (!has_bf16_class(Isa::kAvx512Vnni, features))
    GTEST_SKIP() << "this CPU has no bf16 dot products";
  const MatmulKernels& kernels = matmul_kernels(Isa::kAvx512Vnni, true);
  const ActivationKind kind = is_intel_cpu() ? ActivationKind::kBF16Wide : ActivationKind::kBF16;
  EXPECT_EQ(kernels.bf16->activations, kind);
  const PackedMatrix bf16 = *packed_layout(WeightFormat::kBF16, 16, 32);
  EXPECT_EQ(activation_kind_for(kernels, bf16, true), kind);
  const PackedMatrix f16 = *packed_layout(WeightFormat::kF16, 16, 32);
  EXPECT_EQ(activation_kind_for(kernels, f16, true), ActivationKind::kF32);
  EXPECT_EQ(activation_kind_for(matmul_kernels(Isa::kAvx512Vnni, false), bf16, true),
            ActivationKind::kF32);
}

}  // namespace
}  // namespace millrace
#endif
