#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/cpu.h"
#include "kernels/isa.h"
#include "kernels/matmul_test_support.h"
#include "tensor/block_fp8.h"
#include "tensor/int4_groups.h"

namespace millrace {
namespace {

// More rows than a block has.
constexpr int64_t kTwoBlocks = kMostBlockRows + 6;

constexpr WeightFormat kAllFormats[] = {
    WeightFormat::kF32,  WeightFormat::kF16,  WeightFormat::kBF16, WeightFormat::kQ8_0,
    WeightFormat::kQ4_0, WeightFormat::kQ4_1, WeightFormat::kQ5_0, WeightFormat::kQ5_1,
    WeightFormat::kQ4_K, WeightFormat::kQ5_K, WeightFormat::kQ6_K};

std::vector<Isa> isas() { return available_isas(detect_cpu_features()); }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One matmul with all that it may have.
struct Problem {
  TestTensor weight;
  std::shared_ptr<const TestMatrix> packed;  // the weight in a layout that no format packs to
  std::optional<TestTensor> up;              // then the epilogue is kSiluMul
  std::vector<float> x;
  int64_t rows = 0;
  ActivationKind activations = ActivationKind::kF32;
  std::optional<LeafCuts> leaves;
  float leaf_scale = 1.0f;
  std::vector<float> bias;
  std::vector<float> up_bias;
  std::vector<float> residual;  // then the epilogue is kAddResidual
  DType round = DType::kF32;

  Epilogue epilogue() const {
    if (up) return Epilogue::kSiluMul;
    return residual.empty() ? Epilogue::kStore : Epilogue::kAddResidual;
  }
};

std::vector<float> by_reference(const Problem& problem) {
  std::vector<float> out(static_cast<size_t>(problem.rows * problem.weight.n));
  if (!problem.residual.empty()) out = problem.residual;
  ReferenceMatmulArgs args;
  args.weight = problem.weight.reference();
  if (problem.up) args.up = problem.up->reference();
  args.x = problem.x.data();
  args.rows = problem.rows;
  args.activations = problem.activations;
  args.leaves = problem.leaves ? &*problem.leaves : nullptr;
  args.leaf_scale = problem.leaf_scale;
  args.bias = problem.bias.empty() ? nullptr : problem.bias.data();
  args.up_bias = problem.up_bias.empty() ? nullptr : problem.up_bias.data();
  args.round = problem.round;
  args.epilogue = problem.epilogue();
  args.out = out.data();
  reference_matmul(args);
  return out;
}

// By the kernels, with the items in reverse order, one at a time, on dirty scratch memory.
std::vector<float> by_kernels(const Problem& problem, const MatmulKernels& kernels,
                              int num_threads) {
  const int64_t n = problem.weight.n;
  const TestMatrix weight = problem.packed ? TestMatrix{} : pack(problem.weight);
  const TestMatrix up = problem.up ? pack(*problem.up) : TestMatrix{};
  MatmulArgs args;
  args.kernels = &kernels;
  args.weight = problem.packed ? &problem.packed->matrix : &weight.matrix;
  if (problem.up) args.up = &up.matrix;
  args.input =
      packed_activations(kernels, problem.activations, problem.rows, problem.weight.k, nullptr);
  std::vector<std::byte> packed(static_cast<size_t>(args.input.bytes()), std::byte{0xff});
  args.input.data = packed.data();
  // In two parts, the later rows first.
  const int64_t half = problem.rows / 2;
  pack_activations(kernels, problem.x.data(), problem.weight.k, half, problem.rows, args.input);
  pack_activations(kernels, problem.x.data(), problem.weight.k, 0, half, args.input);
  args.leaves = problem.leaves ? &*problem.leaves : nullptr;
  args.leaf_scale = problem.leaf_scale;
  args.bias = problem.bias.empty() ? nullptr : problem.bias.data();
  args.up_bias = problem.up_bias.empty() ? nullptr : problem.up_bias.data();
  args.round = problem.round;
  args.epilogue = problem.epilogue();
  // Rows are wider than n; what lies beyond must stay as it is.
  const int64_t stride = n + 3;
  std::vector<float> wide(static_cast<size_t>(problem.rows * stride), 77.0f);
  for (int64_t row = 0; row < problem.rows && !problem.residual.empty(); ++row) {
    std::copy_n(problem.residual.begin() + row * n, n, wide.begin() + row * stride);
  }
  args.out = problem.residual.empty() ? wide.data() : nullptr;
  args.out_stride = stride;
  args.residual = problem.residual.empty() ? nullptr : wide.data();
  args.residual_stride = stride;
  const MatmulPlan plan = plan_matmul(args, num_threads);
  std::vector<std::byte> scratch(static_cast<size_t>(plan.scratch_bytes) + 64, std::byte{0xff});
  for (int64_t item = plan.num_items - 1; item >= 0; --item) {
    matmul_run_items(args, plan, item, item + 1, scratch.data());
  }
  EXPECT_EQ(scratch[static_cast<size_t>(plan.scratch_bytes)], std::byte{0xff});
  if (problem.residual.empty() && packs_columns(problem.activations)) {
    expect_packed_outputs(args, wide.data(), stride, num_threads);
  }
  std::vector<float> out;
  for (int64_t row = 0; row < problem.rows; ++row) {
    out.insert(out.end(), wide.begin() + row * stride, wide.begin() + row * stride + n);
    for (int64_t i = n; i < stride; ++i) {
      EXPECT_EQ(wide[static_cast<size_t>(row * stride + i)], 77.0f) << "past row " << row;
    }
  }
  return out;
}

// Index of the first output with other bits, or -1.
int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

void expect_reference_bits(const Problem& problem, const std::string& what) {
  const std::vector<float> expected = by_reference(problem);
  for (const Isa isa : isas()) {
    const MatmulKernels& kernels = matmul_kernels(isa, false);
    for (const int threads : {1, 3}) {
      const std::vector<float> got = by_kernels(problem, kernels, threads);
      const int64_t at = first_difference(expected, got);
      ASSERT_EQ(at, -1) << what << ", " << name_of(problem.weight.format) << ", " << kernels.name
                        << ", rows " << problem.rows << ", n " << problem.weight.n << ", k "
                        << problem.weight.k << ", int8 "
                        << (problem.activations == ActivationKind::kInt8) << ": "
                        << expected[static_cast<size_t>(at)] << " expected, "
                        << got[static_cast<size_t>(at)];
    }
  }
}

Problem plain_problem(WeightFormat format, ActivationKind activations, int64_t rows, int64_t n,
                      int64_t k, std::mt19937& random) {
  Problem problem{.weight = random_tensor(format, n, k, random)};
  problem.rows = rows;
  problem.activations = activations;
  problem.x = random_floats(rows * k, random);
  return problem;
}

std::vector<ActivationKind> kinds_of(WeightFormat format) {
  if (!is_quantized(format)) return {ActivationKind::kF32};
  return {ActivationKind::kF32, ActivationKind::kInt8};
}

// The unit that leaves are cut by, the finest that the format and the kernels allow.
int64_t leaf_unit(WeightFormat format) {
  if (is_quantized(format)) return 32;
  return format == WeightFormat::kBF16 ? 2 : 1;
}

class MatmulFormats : public testing::TestWithParam<WeightFormat> {};

TEST_P(MatmulFormats, EveryTileHeight) {
  std::mt19937 random(1);
  const int64_t k = is_quantized(GetParam()) ? 256 : 70;
  for (const ActivationKind kind : kinds_of(GetParam())) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 40}) {
      expect_reference_bits(plain_problem(GetParam(), kind, rows, 37, k, random), "plain");
    }
  }
}

TEST_P(MatmulFormats, OddShapes) {
  std::mt19937 random(2);
  const int64_t block = info(GetParam()).block;
  const bool quantised = is_quantized(GetParam());
  for (const ActivationKind kind : kinds_of(GetParam())) {
    for (const int64_t n : {1, 15, 16, 17, 80, 97}) {
      for (const int64_t k : {int64_t{1}, int64_t{2}, int64_t{5}}) {
        const int64_t inputs = quantised ? k * block : 37 * k;
        expect_reference_bits(plain_problem(GetParam(), kind, 3, n, inputs, random), "odd shape");
        expect_reference_bits(plain_problem(GetParam(), kind, 1, n, inputs, random), "odd shape");
      }
    }
  }
}

TEST_P(MatmulFormats, SeveralBlocksAndChunks) {
  std::mt19937 random(3);
  for (const ActivationKind kind : kinds_of(GetParam())) {
    const int64_t k = is_quantized(GetParam()) ? 1536 : 1500;
    Problem problem = plain_problem(GetParam(), kind, kTwoBlocks, 35, k, random);
    expect_reference_bits(problem, "blocks");
    problem.leaves = LeafCuts::of(k / 2 / 32 + 1, 32);
    problem.leaves->cut[kNumLeaves] = k;
    for (int64_t& cut : problem.leaves->cut) cut = std::min(cut, k);
    expect_reference_bits(problem, "blocks and leaves");
  }
}

TEST_P(MatmulFormats, LeafTree) {
  std::mt19937 random(4);
  const int64_t unit = leaf_unit(GetParam());
  const int64_t k = is_quantized(GetParam()) ? 768 : 66;
  for (const ActivationKind kind : kinds_of(GetParam())) {
    for (const int64_t rows : {1, 5, 26, 60}) {
      Problem problem = plain_problem(GetParam(), kind, rows, 33, k, random);
      // Sixteen leaves; five units, so that leaves are empty; a scale at the leaves.
      problem.leaves = LeafCuts::of(k / unit, unit);
      expect_reference_bits(problem, "leaves");
      problem.leaf_scale = 1.0f / 2.5f;
      expect_reference_bits(problem, "scaled leaves");
      problem.leaf_scale = 1.0f;
      problem.leaves = LeafCuts::of(3, k / 3);
      expect_reference_bits(problem, "empty leaves");
    }
  }
}

TEST_P(MatmulFormats, EpiloguesAndRounding) {
  std::mt19937 random(5);
  const int64_t k = is_quantized(GetParam()) ? 256 : 48;
  const int64_t n = 19;
  for (const ActivationKind kind : kinds_of(GetParam())) {
    for (const DType round : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const bool bias : {false, true}) {
        for (const int64_t rows : {1, 14}) {
          Problem problem = plain_problem(GetParam(), kind, rows, n, k, random);
          problem.round = round;
          if (bias) problem.bias = random_floats(n, random);
          expect_reference_bits(problem, "store");
          Problem residual = problem;
          residual.residual = random_floats(rows * n, random);
          residual.leaves = LeafCuts::of(k / leaf_unit(GetParam()), leaf_unit(GetParam()));
          expect_reference_bits(residual, "residual");
          problem.up = random_tensor(GetParam(), n, k, random);
          if (bias) problem.up_bias = random_floats(n, random);
          expect_reference_bits(problem, "silu");
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatmulFormats, testing::ValuesIn(kAllFormats),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Matmul, GateAndUpMayDifferInFormat) {
  std::mt19937 random(6);
  for (const ActivationKind kind : {ActivationKind::kF32, ActivationKind::kInt8}) {
    Problem problem = plain_problem(WeightFormat::kQ4_K, kind, 17, 50, 512, random);
    problem.up = random_tensor(WeightFormat::kQ6_K, 50, 512, random);
    expect_reference_bits(problem, "mixed");
  }
  // Rows of one tile, of several that are not expanded, of several blocks.
  for (const int64_t rows : {int64_t{1}, int64_t{17}, kTwoBlocks}) {
    Problem floats = plain_problem(WeightFormat::kF16, ActivationKind::kF32, rows, 50, 512, random);
    floats.up = random_tensor(WeightFormat::kQ8_0, 50, 512, random);
    expect_reference_bits(floats, "mixed floats");
    std::swap(floats.weight, *floats.up);
    expect_reference_bits(floats, "mixed floats, turned round");
  }
}

// Blocks of many tiles and several chunks, with all that a matmul can end with.
TEST(Matmul, EpiloguesOfManyTiles) {
  std::mt19937 random(11);
  using enum WeightFormat;
  for (const auto& [format, kind] :
       {std::pair{kF16, ActivationKind::kF32}, std::pair{kBF16, ActivationKind::kF32},
        std::pair{kQ8_0, ActivationKind::kF32}, std::pair{kQ8_0, ActivationKind::kInt8}}) {
    Problem problem = plain_problem(format, kind, kTwoBlocks, 35, 1536, random);
    problem.bias = random_floats(35, random);
    problem.round = DType::kBF16;
    Problem residual = problem;
    residual.residual = random_floats(kTwoBlocks * 35, random);
    residual.leaves = LeafCuts::of(48, 32);
    residual.leaf_scale = 0.125f;
    expect_reference_bits(residual, "residual");
    problem.up = random_tensor(format, 35, 1536, random);
    problem.up_bias = random_floats(35, random);
    expect_reference_bits(problem, "silu");
  }
}

TEST(Matmul, BlocksFollowTheSecondLevelCache) {
  using enum ActivationKind;
  struct Case {
    ActivationKind kind;
    int64_t k;
    bool leaves;
    int64_t kib;  // of the cache; 0: unknown
    int64_t rows;
  };
  const Case cases[] = {
      // By the bytes of activations.
      {kF32, 1536, false, 512, 288 * 1024 / (1536 * 4)},
      {kF32, 1536, false, 0, 576 * 1024 / (1536 * 4)},
      {kF32, 1536, false, 1024, 576 * 1024 / (1536 * 4)},
      {kF32, 1536, true, 2048, 1152 * 1024 / (1536 * 4)},
      {kBF16Wide, 1536, false, 4096, 1152 * 1024 / (1536 * 4)},
      {kBF16, 5632, false, 2048, 1152 * 1024 / (5632 * 2)},
      // By the rows, whose sums count, too.
      {kF32, 64, false, 0, 132},
      {kF32, 64, true, 1280, 132},
      {kF32, 64, false, 2048, kMostBlockRows},
      {kF32, 64, true, 4096, kMostBlockRows},
      {kInt8, 64, false, 1024, 240},
      {kInt8, 64, false, 4096, 240},
      {kInt8, 64, true, 4096, 120},
      // The least.
      {kF32, 100000, false, 2048, 48},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(most_block_rows({.kind = c.kind, .rows = 1, .k = c.k}, c.leaves, c.kib << 10), c.rows)
        << "kind " << static_cast<int>(c.kind) << ", k " << c.k << ", leaves " << c.leaves << ", "
        << c.kib << " KiB";
  }
}

class MatmulIsas : public testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(Isas, MatmulIsas, testing::ValuesIn(available_isas(detect_cpu_features())),
                         [](const auto& param) { return std::string(name_of(param.param)); });

// Rows that lie anywhere, in runs that begin and end inside tiles, as row by row.
TEST_P(MatmulIsas, PacksRowsTogetherAsOneByOne) {
  const MatmulKernels& kernels = matmul_kernels(GetParam(), false);
  std::mt19937 random(12);
  for (const ActivationKind kind : {ActivationKind::kF32, ActivationKind::kInt8}) {
    for (const int64_t k : {1, 17, 32, 70, 96}) {
      if (kind == ActivationKind::kInt8 && k % 32 != 0) continue;
      for (const int64_t count : {1, 2, 5, 8, 11, 12, 13, 31}) {
        const std::vector<float> x = random_floats(count * k, random);
        std::vector<const float*> rows;
        for (int64_t r = 0; r < count; ++r) rows.push_back(x.data() + (count - 1 - r) * k);
        PackedActivations one = packed_activations(kernels, kind, count, k, nullptr);
        PackedActivations together = one;
        std::vector<std::byte> bytes_one(static_cast<size_t>(one.bytes()), std::byte{0x5a});
        one.data = bytes_one.data();
        for (size_t r = 0; r < rows.size(); ++r) {
          pack_rows(kernels, {rows.data() + r, 1}, static_cast<int64_t>(r), one);
        }
        for (size_t split = 0; split <= rows.size(); ++split) {
          std::vector<std::byte> bytes(bytes_one.size(), std::byte{0xa5});
          together.data = bytes.data();
          pack_rows(kernels, {rows.data(), split}, 0, together);
          pack_rows(kernels, {rows.data() + split, rows.size() - split},
                    static_cast<int64_t>(split), together);
          ASSERT_EQ(bytes, bytes_one) << count << " rows, " << k << " inputs, cut at " << split;
        }
      }
    }
  }
}

// Every shape of problem that kernels tell apart, small: tile heights, blocks of tiles, chunks,
// leaves. `make` gives a problem of so many rows, outputs and inputs.
void expect_reference_bits_of(
    const std::function<Problem(int64_t rows, int64_t n, int64_t k)>& make) {
  for (const int64_t rows : {1, 2, 3, 5, 6, 7, 12, 13, 26, 40}) {
    expect_reference_bits(make(rows, 37, 224), "plain");
  }
  for (const int64_t n : {1, 16, 80}) expect_reference_bits(make(1, n, 32), "odd shape");
  Problem problem = make(kTwoBlocks, 35, 1536);
  expect_reference_bits(problem, "blocks");
  for (const int64_t rows : {1, 14, 60}) {
    problem = make(rows, 33, 768);
    problem.leaves = LeafCuts::of(24, 32);
    expect_reference_bits(problem, "leaves");
    problem.leaves = LeafCuts::of(3, 256);
    expect_reference_bits(problem, "empty leaves");
  }
}

TEST(Matmul, BlockFp8) {
  std::mt19937 random(10);
  expect_reference_bits_of([&](int64_t rows, int64_t n, int64_t k) {
    std::vector<std::byte> codes(static_cast<size_t>(n * k));
    for (std::byte& code : codes) {
      // Every code but those that are NaN.
      do {
        code = static_cast<std::byte>(random() & 0xff);
      } while ((code & std::byte{0x7f}) == std::byte{0x7f});
    }
    const std::vector<float> scales = random_floats(ceil_div(n, 128) * ceil_div(k, 128), random);
    const Fp8Source source = {
        .tensor = {.codes = codes.data(),
                   .columns = k,
                   .scales = reinterpret_cast<const std::byte*>(scales.data())}};
    Problem problem = plain_problem(WeightFormat::kF32, ActivationKind::kF32, rows, n, k, random);
    for (int64_t i = 0; i < n * k; ++i) {
      const float value = source.tensor.weight_at(i / k, i % k);
      std::memcpy(problem.weight.bytes.data() + 4 * i, &value, 4);
    }
    TestMatrix packed{fp8_layout(source, n, k), {}};
    EXPECT_EQ(packed.matrix.kind, PackedKind::kFp8);
    packed.storage.assign(static_cast<size_t>(packed.matrix.total_bytes()), std::byte{0xff});
    packed.matrix.panels = packed.storage.data();
    pack_fp8_panels(source, packed.matrix, 0, packed.matrix.num_panels(), packed.storage.data());
    problem.packed = std::make_shared<TestMatrix>(std::move(packed));
    return problem;
  });
}

// Codes and scales of Q4_0, with the scales as floats.
TEST(Matmul, FourBitCodesWithWideScales) {
  std::mt19937 random(11);
  for (const ActivationKind kind : {ActivationKind::kF32, ActivationKind::kInt8}) {
    expect_reference_bits_of([&](int64_t rows, int64_t n, int64_t k) {
      Problem problem = plain_problem(WeightFormat::kQ4_0, kind, rows, n, k, random);
      std::vector<uint8_t> codes(static_cast<size_t>(n * k));
      std::vector<float> scales(static_cast<size_t>(n * k / 32));
      for (int64_t row = 0; row < n; ++row) {
        unpack_row(WeightFormat::kQ4_0,
                   problem.weight.bytes.data() + row * row_bytes(WeightFormat::kQ4_0, k), k,
                   codes.data() + row * k, scales.data() + row * k / 32, nullptr);
      }
      std::vector<uint32_t> words(static_cast<size_t>(n * k / 8));
      for (size_t i = 0; i < codes.size(); ++i) {
        words[i / 8] |= static_cast<uint32_t>(codes[i]) << (i % 8 * 4);
      }
      const Int4Tensor tensor = {.packing = Int4Packing::kCompressedTensors,
                                 .codes = reinterpret_cast<const std::byte*>(words.data()),
                                 .scales = reinterpret_cast<const std::byte*>(scales.data()),
                                 .scale_format = WeightFormat::kF32,
                                 .n = n,
                                 .k = k,
                                 .group = 32};
      TestMatrix packed{int4_layout(tensor, n), {}};
      packed.storage.assign(static_cast<size_t>(packed.matrix.total_bytes()), std::byte{0xff});
      packed.matrix.panels = packed.storage.data();
      pack_int4_panels(tensor, 0, packed.matrix, 0, packed.matrix.num_panels(),
                       packed.storage.data());
      problem.packed = std::make_shared<TestMatrix>(std::move(packed));
      return problem;
    });
  }
}

// The largest codes on both sides: pairs of products do not fit in 16 bits, which an instruction
// set without int8 dot products must not saturate.
TEST(Matmul, ExtremeCodesDoNotSaturate) {
  std::mt19937 random(7);
  for (const int pattern : {0, 1, 2, 3}) {
    Problem problem = plain_problem(WeightFormat::kQ8_0, ActivationKind::kInt8, 7, 20, 96, random);
    for (size_t at = 0; at < problem.weight.bytes.size(); at += 34) {
      for (size_t i = 2; i < 34; ++i) {
        const bool high = pattern == 0 || (pattern >= 2 && i % 2 == 0);
        problem.weight.bytes[at + i] = std::byte{high ? uint8_t{0x7f} : uint8_t{0x80}};
      }
    }
    for (size_t i = 0; i < problem.x.size(); ++i) {
      problem.x[i] = pattern == 3 && i % 2 == 1 ? -3.0f : 3.0f;
    }
    expect_reference_bits(problem, "extreme codes");
  }
}

TEST(Matmul, ActivationsThatCannotBeQuantised) {
  std::mt19937 random(8);
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), inf, -inf}) {
    Problem problem = plain_problem(WeightFormat::kQ4_1, ActivationKind::kInt8, 14, 18, 64, random);
    problem.x[3 * 64 + 40] = bad;
    const std::vector<float> expected = by_reference(problem);
    for (const Isa isa : isas()) {
      const std::vector<float> got = by_kernels(problem, matmul_kernels(isa, false), 1);
      for (size_t i = 0; i < got.size(); ++i) {
        // The row shows it; the other rows do not know.
        EXPECT_EQ(std::isnan(got[i]), i / 18 == 3) << name_of(isa);
        if (i / 18 != 3) {
          EXPECT_EQ(got[i], expected[i]);
        }
      }
    }
  }
  // Groups of zeros and of denormals; magnitudes near the limits.
  Problem small = plain_problem(WeightFormat::kQ8_0, ActivationKind::kInt8, 2, 18, 128, random);
  for (int i = 0; i < 32; ++i) {
    small.x[static_cast<size_t>(i)] = 0.0f;
    small.x[static_cast<size_t>(32 + i)] = 1e-44f * static_cast<float>(i);
    small.x[static_cast<size_t>(64 + i)] = 0x1p-120f / static_cast<float>(i + 1);
    small.x[static_cast<size_t>(96 + i)] = 3e38f / static_cast<float>(i + 1);
  }
  expect_reference_bits(small, "magnitudes");
}

// The comparison must see a wrong order of additions: it is what all of the tests above rest on.
TEST(Matmul, MutatedOrdersAreCaught) {
  std::mt19937 random(9);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kQ8_0}) {
    const bool int8 = format == WeightFormat::kQ8_0;
    Problem problem = plain_problem(format, int8 ? ActivationKind::kInt8 : ActivationKind::kF32, 8,
                                    64, 768, random);
    problem.leaves = LeafCuts::of(24, 32);
    const std::vector<float> expected = by_reference(problem);
    const ReferenceWeight weight = problem.weight.reference();
    // Every output again from its leaf sums, put together in another order.
    const auto mutated = [&](const std::function<float(const float*)>& combine) {
      std::vector<float> out;
      for (int64_t row = 0; row < problem.rows; ++row) {
        const float* x = problem.x.data() + row * weight.k;
        const QuantisedRow quantised = reference_quantise(x, weight.k);
        for (int64_t o = 0; o < weight.n; ++o) {
          float leaves[kNumLeaves];
          for (int leaf = 0; leaf < kNumLeaves; ++leaf) {
            const int64_t begin = problem.leaves->begin(leaf);
            const int64_t end = problem.leaves->end(leaf);
            leaves[leaf] = int8 ? reference_chain_int8(weight, o, quantised, begin, end)
                                : reference_chain_f32(weight, o, x, begin, end);
          }
          out.push_back(combine(leaves));
        }
      }
      return out;
    };
    // The judge itself, put together the same way.
    EXPECT_EQ(first_difference(mutated(reference_leaf_tree), expected), -1);
    const auto sequential = mutated([](const float* leaves) {
      float sum = 0.0f;
      for (int i = 0; i < kNumLeaves; ++i) sum += leaves[i];
      return sum;
    });
    const auto two_leaves_swapped = mutated([](const float* leaves) {
      float swapped[kNumLeaves];
      std::copy_n(leaves, kNumLeaves, swapped);
      std::swap(swapped[5], swapped[6]);
      return reference_leaf_tree(swapped);
    });
    const std::vector<float> kernels = by_kernels(problem, matmul_kernels(isas().back(), false), 1);
    EXPECT_EQ(first_difference(kernels, expected), -1);
    EXPECT_NE(first_difference(kernels, sequential), -1);
    EXPECT_NE(first_difference(kernels, two_leaves_swapped), -1);
    // One chain over all of K in place of the leaves.
    Problem no_leaves = problem;
    no_leaves.leaves.reset();
    EXPECT_NE(first_difference(kernels, by_reference(no_leaves)), -1);
  }
}

TEST(Matmul, TheForcedInstructionSetRuns) {
  const CpuFeatures features = detect_cpu_features();
  for (const Isa isa : isas()) {
    const Isa resolved = *resolve_isa(std::string(name_of(isa)), features);
    const MatmulKernels& kernels = matmul_kernels(resolved, false);
    EXPECT_EQ(kernels.name, name_of(isa));
    EXPECT_EQ(kernels.int8->name, name_of(isa));
    EXPECT_EQ(kernels.floats->name, isa == Isa::kAvx512Vnni ? "avx512" : name_of(isa));
    EXPECT_EQ(kernels.bf16, nullptr);
  }
  // Every set has functions of its own.
  for (const Isa isa : isas()) {
    if (isa == Isa::kPortable) continue;
    EXPECT_NE(matmul_kernels(isa, false).int8->tile[0][1],
              matmul_kernels(Isa::kPortable, false).int8->tile[0][1]);
  }
}

}  // namespace
}  // namespace millrace
