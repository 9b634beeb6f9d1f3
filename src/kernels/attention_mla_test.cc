// Every instruction set's latent attention against reference_mla.h, byte for byte, however the work
// is cut; the reference itself against softmax attention in double precision.
#include "kernels/attention_mla.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>
#include <string>

#include "base/cpu.h"
#include "kernels/mla_test_cache.h"
#include "kernels/reference_ops.h"

namespace millrace {
namespace {

// A cut of the work: most heads of an item (a multiple of 16), and parts of the leaves.
struct MlaCut {
  int heads = 64;
  int parts = 1;
};

void run_cut(const MlaKernels& kernels, MlaFixture& fixture, const MlaCut& cut) {
  MlaArgs args = fixture.args;
  const MlaLayerView& cache = args.cache;
  const int64_t root = mla_root_floats(cache.latent);
  std::vector<float> workspace(static_cast<size_t>(16 * kMlaMostGroups * root), NAN);
  std::vector<std::byte> scratch(
      static_cast<size_t>(mla_scratch_bytes(cache.latent, cache.rope, cut.heads)), std::byte{0xff});
  args.workspace = workspace.data();
  for (size_t s = 0; s < fixture.sequences.size(); ++s) {
    for (int token = 0; token < fixture.sequences[s].query_len; ++token) {
      for (int head = 0; head < args.num_heads; head += cut.heads) {
        MlaItem item;
        item.sequence = static_cast<int32_t>(s);
        item.token = token;
        item.head_begin = head;
        item.num_heads = std::min(cut.heads, args.num_heads - head);
        const int groups = (item.num_heads + 15) / 16;
        for (int part = 0; part < cut.parts; ++part) {
          item.leaf_begin = part * 16 / cut.parts;
          item.leaf_end = (part + 1) * 16 / cut.parts;
          item.workspace_offset = cut.parts == 1 ? -1 : part * groups * root;
          kernels.run_item(args, item, scratch.data());
        }
        if (cut.parts == 1) continue;
        kernels.merge(args, {item.sequence, token, head, item.num_heads, cut.parts, 0},
                      scratch.data());
      }
    }
  }
}

int first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return static_cast<int>(i);
  }
  return -1;
}

void clear_output(MlaFixture& fixture) { std::ranges::fill(fixture.out, -7.0f); }

std::vector<float> reference_output(MlaFixture& fixture, bool bf16_class = false) {
  clear_output(fixture);
  reference_mla(fixture.args, static_cast<int>(fixture.sequences.size()), bf16_class);
  std::vector<float> expected = fixture.out;
  clear_output(fixture);
  return expected;
}

// The kernels of an instruction set, in either numeric class.
struct MlaBuild {
  Isa isa = Isa::kPortable;
  bool bf16_class = false;

  std::string name() const { return std::string(name_of(isa)) + (bf16_class ? "_bf16_class" : ""); }
};

std::vector<MlaBuild> available_builds() {
  const CpuFeatures features = detect_cpu_features();
  std::vector<MlaBuild> builds;
  for (const Isa isa : available_isas(features)) {
    builds.push_back({isa});
    if (has_bf16_class(isa, features)) builds.push_back({isa, true});
  }
  return builds;
}

class AttentionMlaTest : public ::testing::TestWithParam<MlaBuild> {
 protected:
  const MlaKernels& kernels(const MlaLayerView& cache) const {
    return mla_kernels(GetParam().isa, GetParam().bf16_class, cache);
  }
  bool bf16_class() const { return GetParam().bf16_class; }

  // The cache types of a test; in the class bf16 the one that it is about.
  std::vector<DType> cache_types(std::vector<DType> types) const {
    return bf16_class() ? std::vector{DType::kBF16} : types;
  }

  void expect_reference(MlaCase c, const std::vector<MlaCut>& cuts) {
    if (bf16_class()) c.cache_dtype = DType::kBF16;
    MlaFixture fixture(c);
    const MlaKernels& kernels = this->kernels(fixture.args.cache);
    const std::vector<float> expected = reference_output(fixture, bf16_class());
    for (const MlaCut& cut : cuts) {
      clear_output(fixture);
      run_cut(kernels, fixture, cut);
      ASSERT_EQ(first_difference(fixture.out, expected), -1)
          << kernels.name << " latent " << c.latent << " rope " << c.rope << " heads "
          << c.num_heads << " cache " << name_of(c.cache_dtype) << " block " << c.block_size
          << " length " << c.lengths[0].first << "+" << c.lengths[0].second << " selected "
          << c.selected << " cut " << cut.heads << " heads, " << cut.parts << " parts";
    }
  }
};

const std::vector<DType> kCacheTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8};

TEST_P(AttentionMlaTest, RunsTheBuildThatWasAskedFor) {
  const Isa isa = GetParam().isa;
  const std::string_view in_f32 = isa == Isa::kAvx512Vnni ? "avx512" : name_of(isa);
  for (const DType dtype : kCacheTypes) {
    MlaLayerView cache;
    cache.dtype = dtype;
    cache.latent = 64;
    cache.rope = 16;
    const bool dots = bf16_class() && dtype == DType::kBF16;
    EXPECT_EQ(kernels(cache).name, dots ? "avx512bf16" : in_f32) << name_of(dtype);
    cache.rope = 15;  // pairs would not come out even
    EXPECT_EQ(kernels(cache).name, in_f32) << name_of(dtype);
  }
}

TEST_P(AttentionMlaTest, ShapesAndCacheTypes) {
  for (const auto& [latent, rope] : {std::pair{64, 16}, {96, 64}, {40, 8}, {64, 32}, {7, 3}}) {
    for (const int heads : {1, 4, 16, 20}) {
      for (const DType cache : cache_types(kCacheTypes)) {
        const MlaCase c{.latent = latent,
                        .rope = rope,
                        .num_heads = heads,
                        .block_size = 48,
                        .cache_dtype = cache,
                        .lengths = {{37, 1}, {0, 3}},
                        .selected = 29};
        expect_reference(c, {{64, 1}, {16, 4}});
      }
    }
  }
}

TEST_P(AttentionMlaTest, FullSizeOfLatentAndHeads) {
  for (const DType cache : cache_types({DType::kF16, DType::kI8})) {
    const MlaCase c{.latent = 512,
                    .rope = 64,
                    .num_heads = 64,
                    .cache_dtype = cache,
                    .lengths = {{299, 1}},
                    .selected = 90};
    expect_reference(c, {{64, 1}, {32, 2}, {16, 8}});
  }
}

// Rows of whole cache lines, in full tiles and others: the way of the published models.
TEST_P(AttentionMlaTest, FullTilesOfWholeLines) {
  for (const int length : {1, 16, 17, 256, 257, 600}) {
    for (const DType cache : cache_types(kCacheTypes)) {
      const MlaCase c{.latent = 64,
                      .rope = 32,
                      .num_heads = length < 300 ? 20 : 5,
                      .cache_dtype = cache,
                      .lengths = {{length - 1, 1}}};
      expect_reference(c, {{64, 1}, {16, 4}, {16, 16}});
    }
  }
  const MlaCase large{.latent = 512,
                      .rope = 64,
                      .num_heads = 33,
                      .cache_dtype = cache_types({DType::kF16}).front(),
                      .lengths = {{699, 1}},
                      .selected = 500};
  expect_reference(large, {{64, 1}, {16, 2}});
}

// Full tiles where the latent ends inside a block of 16 elements, and where the row does.
TEST_P(AttentionMlaTest, FullTilesOfOtherWidths) {
  for (const auto& [latent, rope] : {std::pair{40, 8}, {24, 8}, {7, 3}, {20, 6}}) {
    for (const int length : {16, 17, 257, 600}) {
      for (const DType cache : cache_types(kCacheTypes)) {
        const MlaCase c{.latent = latent,
                        .rope = rope,
                        .num_heads = 20,
                        .cache_dtype = cache,
                        .lengths = {{length - 1, 1}}};
        expect_reference(c, {{32, 1}, {16, 4}});
      }
    }
  }
}

TEST_P(AttentionMlaTest, LengthsOfDenseAttention) {
  for (const int length : {1, 2, 15, 16, 17, 31, 255, 256, 257, 258, 600}) {
    for (const int block_size : {16, 48}) {
      const MlaCase c{.latent = 32,
                      .rope = 16,
                      .num_heads = 3,
                      .block_size = block_size,
                      .cache_dtype = block_size == 16 ? DType::kF16 : DType::kI8,
                      .lengths = {{length - 1, 1}}};
      expect_reference(c, {{16, 1}, {16, 2}, {16, 4}, {16, 8}, {16, 16}});
    }
  }
}

// Leaves of many sizes, empty ones and ones of more than a batch among them.
TEST_P(AttentionMlaTest, SizesOfSelections) {
  for (const int selected : {1, 2, 3, 5, 8, 13, 31, 64, 200, 599, 3300}) {
    const MlaCase c{.latent = 32,
                    .rope = 16,
                    .num_heads = selected < 600 ? 20 : 2,
                    .lengths = {{selected < 600 ? 640 : 3600, 1}},
                    .selected = selected};
    expect_reference(c, {{32, 1}, {16, 2}, {32, 4}, {16, 8}, {16, 16}});
  }
}

TEST_P(AttentionMlaTest, LargeScoresMoveTheMaximum) {
  const MlaCase c{.latent = 32,
                  .rope = 16,
                  .num_heads = 17,
                  .lengths = {{700, 2}},
                  .selected = 400,
                  .magnitude = 40.0f};
  expect_reference(c, {{32, 1}, {16, 4}});
}

// Chunks of one prompt give what the whole prompt gives, and so does a selection of everything.
TEST_P(AttentionMlaTest, ChunksAndSelectionsOfAllAreEqualToTheWhole) {
  const MlaCase c{.latent = 32,
                  .rope = 16,
                  .num_heads = 3,
                  .cache_dtype = bf16_class() ? DType::kBF16 : DType::kF16,
                  .lengths = {{0, 300}}};
  MlaFixture fixture(c);
  const MlaKernels& kernels = this->kernels(fixture.args.cache);
  run_cut(kernels, fixture, {});
  const std::vector<float> whole = fixture.out;
  EXPECT_EQ(first_difference(whole, reference_output(fixture, bf16_class())), -1);
  fixture.select(300);
  clear_output(fixture);
  run_cut(kernels, fixture, {});
  EXPECT_EQ(first_difference(fixture.out, whole), -1);
  fixture.args.selection = {};
  std::vector<AttentionSequence> chunks;
  for (int begin = 0; begin < 300; begin += 7) {
    chunks.push_back({begin, std::min(7, 300 - begin), begin, fixture.sequences[0].block_table});
  }
  fixture.sequences = chunks;
  fixture.args.sequences = fixture.sequences.data();
  clear_output(fixture);
  run_cut(kernels, fixture, {16, 2});
  EXPECT_EQ(first_difference(fixture.out, whole), -1);
}

TEST_P(AttentionMlaTest, WritesWhatTheReferenceWrites) {
  const float inf = std::numeric_limits<float>::infinity();
  constexpr int kTokens = 9;
  for (const DType dtype : cache_types(kCacheTypes)) {
    for (const auto& [latent, rope] : {std::pair{64, 16}, {37, 5}}) {
      MlaLayout layout;
      layout.dtype = dtype;
      layout.latent = latent;
      layout.rope = rope;
      layout = MlaLayout::make(layout, {0});
      std::mt19937 generator(3);
      std::normal_distribution<float> normal(0.0f, 2.0f);
      std::vector<float> x(static_cast<size_t>(kTokens * (latent + rope + 2)));
      for (float& value : x) value = normal(generator);
      const int64_t stride = latent + rope + 2;
      for (int d = 0; d < latent + rope; ++d) x[static_cast<size_t>(2 * stride + d)] = 0;
      x[static_cast<size_t>(3 * stride + latent - 1)] = NAN;
      x[static_cast<size_t>(4 * stride + latent)] = -inf;
      x[static_cast<size_t>(5 * stride + 1)] = 1e-42f;
      const int64_t slots[kTokens] = {31, 4, 5, -1, 16, 17, 2, 0, 30};
      const auto written = [&](auto&& write) {
        std::vector<std::byte> memory(static_cast<size_t>(2 * layout.block_bytes) + 64,
                                      std::byte{0xff});
        const auto address = reinterpret_cast<uintptr_t>(memory.data());
        const size_t skip = (64 - address % 64) % 64;
        write(MlaWriteArgs{x.data(), stride, x.data() + latent, stride, slots,
                           mla_layer_view(layout, 0, memory.data() + skip, 2)});
        return std::vector<std::byte>(
            memory.begin() + static_cast<std::ptrdiff_t>(skip),
            memory.begin() + static_cast<std::ptrdiff_t>(skip) + 2 * layout.block_bytes);
      };
      const auto expected =
          written([&](const MlaWriteArgs& args) { reference_mla_write(args, 0, kTokens); });
      const auto actual = written([&](const MlaWriteArgs& args) {
        kernels(args.cache).write(args, 0, 4);
        kernels(args.cache).write(args, 4, kTokens);
      });
      EXPECT_EQ(actual, expected) << name_of(dtype) << " " << latent << "+" << rope;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionMlaTest, ::testing::ValuesIn(available_builds()),
                         [](const auto& info) { return info.param.name(); });

// Plain softmax attention in double precision, from the rows before rounding.
double largest_error(DType cache_dtype, bool bf16_class = false) {
  constexpr int kLatent = 48;
  constexpr int kRope = 16;
  const MlaCase c{.latent = kLatent,
                  .rope = kRope,
                  .num_heads = 2,
                  .cache_dtype = cache_dtype,
                  .lengths = {{0, 333}}};
  MlaFixture fixture(c);
  reference_mla(fixture.args, 1, bf16_class);
  double worst = 0;
  for (const int token : {0, 1, 15, 16, 100, 255, 256, 332}) {
    for (int head = 0; head < 2; ++head) {
      const float* q = fixture.q.data() + token * fixture.args.q_stride + head * (kLatent + kRope);
      std::vector<double> result(kLatent);
      double sum = 0;
      for (int p = 0; p <= token; ++p) {
        const float* latent = fixture.latents.data() + p * kLatent;
        const float* rope_key = fixture.rope_keys.data() + p * kRope;
        double score = 0;
        for (int d = 0; d < kLatent; ++d) score += static_cast<double>(q[d]) * latent[d];
        for (int d = 0; d < kRope; ++d) score += static_cast<double>(q[kLatent + d]) * rope_key[d];
        const double weight = std::exp(score * fixture.args.scale);
        sum += weight;
        for (int d = 0; d < kLatent; ++d) result[static_cast<size_t>(d)] += weight * latent[d];
      }
      const float* out = fixture.out.data() + token * fixture.args.out_stride + head * kLatent;
      for (int d = 0; d < kLatent; ++d) {
        worst = std::max(worst, std::fabs(out[d] - result[static_cast<size_t>(d)] / sum));
      }
    }
  }
  return worst;
}

TEST(ReferenceMla, IsSoftmaxAttention) {
  EXPECT_LT(largest_error(DType::kF32), 4e-6);
  EXPECT_LT(largest_error(DType::kF16), 6e-3);
  EXPECT_LT(largest_error(DType::kBF16), 4e-2);
  EXPECT_LT(largest_error(DType::kI8), 8e-2);
  // Rounded queries and weights add to it, and no more than as much again.
  EXPECT_GT(largest_error(DType::kBF16, true), largest_error(DType::kBF16));
  EXPECT_LT(largest_error(DType::kBF16, true), 6e-2);
}

// The comparison of bytes must see a changed order: leaves merged from left to right, leaves in
// turned places, a list in another order, the rope key before the latent.
TEST(ReferenceMla, MutationsOfTheOrderAreSeen) {
  const MlaCase c{.latent = 64, .rope = 16, .num_heads = 1, .lengths = {{599, 1}}};
  MlaFixture fixture(c);
  const MlaQuery query{fixture.q.data(), 599, 0};
  std::vector<AttentionState> leaves;
  for (int leaf = 0; leaf < 16; ++leaf) {
    leaves.push_back(reference_mla_leaf(fixture.args, fixture.sequences[0], query, leaf));
  }
  const AttentionState tree = reference_attention_tree(leaves);
  const auto differs = [&](const AttentionState& other) {
    return first_difference(tree.acc, other.acc) >= 0 || tree.l != other.l;
  };
  EXPECT_FALSE(differs(reference_attention_tree(leaves)));
  AttentionState chain = leaves[0];
  for (size_t i = 1; i < 16; ++i) chain = reference_attention_merge(chain, leaves[i]);
  EXPECT_TRUE(differs(chain));
  std::rotate(leaves.begin(), leaves.begin() + 1, leaves.end());
  EXPECT_TRUE(differs(reference_attention_tree(leaves)));

  // In the class bf16 the second of a pair goes first.
  const auto half = [](float x) { return f32_to_bf16(x); };
  const Bf16Pair ones{half(1.0f), half(1.0f)};
  const float in_order = reference_bf16_dot(1.0f, {half(-1.0f), half(0x1p-24f)}, ones);
  EXPECT_EQ(in_order, 0.0f);
  EXPECT_EQ(reference_bf16_dot(1.0f, {half(0x1p-24f), half(-1.0f)}, ones), 0x1p-24f);

  // The kernel, given a selection whose leaves are not in ascending order, or shifted by a tile.
  const std::vector<float> expected = reference_output(fixture);
  std::vector<int32_t> positions;
  std::array<int32_t, 17> leaf_begin{};
  const auto list = [&](int turn) {
    positions.clear();
    for (int leaf = 0; leaf < 16; ++leaf) {
      leaf_begin[static_cast<size_t>(leaf)] = static_cast<int32_t>(positions.size());
      for (int32_t p = 0; p < 600; ++p) {
        if ((p / 16 + turn) % 16 == leaf) positions.push_back(p);
      }
    }
    leaf_begin[16] = 600;
    fixture.args.selection = {positions.data(), 600, leaf_begin.data()};
  };
  const auto run = [&] {
    clear_output(fixture);
    run_cut(mla_kernels(Isa::kPortable), fixture, {16, 4});
    return first_difference(fixture.out, expected);
  };
  list(0);
  EXPECT_EQ(run(), -1);
  for (size_t leaf = 0; leaf < 16; ++leaf) {
    std::reverse(positions.begin() + leaf_begin[leaf], positions.begin() + leaf_begin[leaf + 1]);
  }
  EXPECT_GE(run(), 0);
  list(1);
  EXPECT_GE(run(), 0);
}

// What is never visible or selected is never read: rows that are poisoned change nothing.
TEST(ReferenceMla, UnselectedRowsAreNotRead) {
  const MlaCase c{.latent = 32,
                  .rope = 16,
                  .num_heads = 3,
                  .cache_dtype = DType::kBF16,
                  .lengths = {{500, 1}},
                  .selected = 77};
  MlaFixture fixture(c);
  const std::vector<float> expected = reference_output(fixture);
  const std::vector<float> expected_in_bf16 = reference_output(fixture, true);
  std::vector<bool> chosen(501);
  for (int i = 0; i < 77; ++i) {
    chosen[static_cast<size_t>(fixture.args.selection.positions[i])] = true;
  }
  for (int64_t p = 0; p <= 500; ++p) {
    if (chosen[static_cast<size_t>(p)]) continue;
    std::byte* row =
        fixture.args.cache.row(fixture.sequences[0].block_table[p / 16], static_cast<int>(p % 16));
    std::fill_n(row, fixture.args.cache.row_bytes(), std::byte{0xff});
  }
  for (const MlaBuild& build : available_builds()) {
    clear_output(fixture);
    run_cut(mla_kernels(build.isa, build.bf16_class, fixture.args.cache), fixture, {16, 2});
    const std::vector<float>& same = build.bf16_class ? expected_in_bf16 : expected;
    EXPECT_EQ(first_difference(fixture.out, same), -1) << build.name();
  }
}

}  // namespace
}  // namespace millrace
