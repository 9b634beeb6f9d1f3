// The numeric class bf16: matmuls equal to chains of the reference's dot products in every tile
// height and layout, and these to the instruction.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iterator>
#include <random>

#include "base/cpu.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/matmul_test_support.h"
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

// One output: a chain over pairs of [begin, end).
float chain_bf16(const uint16_t* weight, const float* x, int64_t begin, int64_t end) {
  float acc = 0;
  for (int64_t i = begin; i < end; i += 2) {
    acc = reference_bf16_dot(acc, {f32_to_bf16(x[i]), f32_to_bf16(x[i + 1])},
                             {weight[i], weight[i + 1]});
  }
  return acc;
}

TEST(MatmulBf16, EqualsChainsOfTheReference) {
  if (!has_bf16_class(Isa::kAvx512Vnni, detect_cpu_features()))
    GTEST_SKIP() << "this CPU has no bf16 dot products";
  const MatmulKernels& kernels = matmul_kernels(Isa::kAvx512Vnni, true);
  std::mt19937 random(1);
  const int64_t n = 37;
  for (const int64_t k : {int64_t{2}, int64_t{190}, int64_t{1100}}) {
    const TestTensor tensor = random_tensor(WeightFormat::kBF16, n, k, random);
    const TestMatrix weight = pack(tensor);
    const LeafCuts leaves = LeafCuts::of(k / 2, 2);
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 40, 130}) {
      const std::vector<float> x = random_floats(rows * k, random);
      for (const bool with_leaves : {false, true}) {
        std::vector<float> out(static_cast<size_t>(rows * n));
        MatmulArgs args;
        args.kernels = &kernels;
        args.weight = &weight.matrix;
        args.input = packed_activations(kernels, ActivationKind::kBF16, rows, k, nullptr);
        std::vector<std::byte> packed(static_cast<size_t>(args.input.bytes()));
        args.input.data = packed.data();
        pack_activations(kernels, x.data(), k, 0, rows, args.input);
        args.leaves = with_leaves ? &leaves : nullptr;
        args.out = out.data();
        args.out_stride = n;
        const MatmulPlan plan = plan_matmul(args, 2);
        std::vector<std::byte> scratch(static_cast<size_t>(plan.scratch_bytes), std::byte{0xff});
        matmul_run_items(args, plan, 0, plan.num_items, scratch.data());
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t o = 0; o < n; ++o) {
            const auto* weights =
                reinterpret_cast<const uint16_t*>(tensor.bytes.data() + o * k * 2);
            const float* values = x.data() + row * k;
            float sums[kNumLeaves];
            for (int leaf = 0; leaf < kNumLeaves && with_leaves; ++leaf) {
              sums[leaf] = chain_bf16(weights, values, leaves.begin(leaf), leaves.end(leaf));
            }
            const float expected =
                with_leaves ? reference_leaf_tree(sums) : chain_bf16(weights, values, 0, k);
            ASSERT_EQ(out[static_cast<size_t>(row * n + o)], expected)
                << "rows " << rows << ", k " << k << ", row " << row << ", output " << o;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
#endif
