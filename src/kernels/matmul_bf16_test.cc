// The numeric class bf16: equal to itself in every tile height and layout, and to chains of the
// instruction in its narrowest form.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/matmul_test_support.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace millrace {
namespace {

// One output: a chain over pairs of [begin, end) in lane 0 of the 128-bit instruction.
[[gnu::target("avx512f,avx512vl,avx512bf16")]] float chain_bf16(const uint16_t* weight,
                                                                const float* x, int64_t begin,
                                                                int64_t end) {
  __m128 acc = _mm_setzero_ps();
  for (int64_t i = begin; i < end; i += 2) {
    const uint32_t a = static_cast<uint32_t>(f32_to_bf16(x[i])) |
                       static_cast<uint32_t>(f32_to_bf16(x[i + 1])) << 16;
    const uint32_t b = static_cast<uint32_t>(weight[i]) | static_cast<uint32_t>(weight[i + 1])
                                                              << 16;
    acc = _mm_dpbf16_ps(acc, (__m128bh)_mm_cvtsi32_si128(static_cast<int>(a)),
                        (__m128bh)_mm_cvtsi32_si128(static_cast<int>(b)));
  }
  return _mm_cvtss_f32(acc);
}

TEST(MatmulBf16, EqualsChainsOfTheInstruction) {
  if (!detect_cpu_features().avx512_bf16) GTEST_SKIP() << "this CPU has no bf16 dot products";
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
