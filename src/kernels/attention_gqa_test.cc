// Every instruction set's attention against reference_attention.h, byte for byte, however the work
// is cut; the reference itself against softmax attention in double precision.
#include "kernels/attention_gqa.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <string>

#include "kernels/attention_test_cache.h"
#include "kernels/reference_attention.h"

namespace millrace {
namespace {

// Cuts every sequence into items of `tokens` x `heads` rows over 16 / parts leaves, runs and
// merges.
void run_cut(const AttentionKernels& kernels, AttentionFixture& fixture, int tokens, int heads,
             int parts) {
  AttentionArgs args = fixture.args;
  const KvLayout& layout = args.cache.layout;
  const int group = args.num_heads / layout.num_kv_heads;
  const int64_t root = attention_root_floats(layout.head_dim);
  std::vector<float> workspace(static_cast<size_t>(16 * kAttentionRows * root), NAN);
  std::vector<std::byte> scratch(static_cast<size_t>(attention_scratch_bytes(layout.head_dim)),
                                 std::byte{0xff});
  args.workspace = workspace.data();
  for (size_t s = 0; s < fixture.sequences.size(); ++s) {
    const int query_len = fixture.sequences[s].query_len;
    for (int token = 0; token < query_len; token += tokens) {
      for (int head = 0; head < args.num_heads;) {
        const int group_end = (head / group + 1) * group;
        AttentionItem item;
        item.sequence = static_cast<int32_t>(s);
        item.token_begin = token;
        item.num_tokens = std::min(tokens, query_len - token);
        item.head_begin = head;
        item.num_heads = std::min(heads, group_end - head);
        const int64_t rows = int64_t{item.num_tokens} * item.num_heads;
        for (int part = 0; part < parts; ++part) {
          item.leaf_begin = part * 16 / parts;
          item.leaf_end = (part + 1) * 16 / parts;
          item.workspace_offset = parts == 1 ? -1 : part * rows * root;
          kernels.run_item(args, item, scratch.data());
        }
        if (parts > 1) {
          kernels.merge(args,
                        {item.sequence, token, item.num_tokens, head, item.num_heads, parts, 0},
                        scratch.data());
        }
        head += item.num_heads;
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

std::vector<float> reference_output(AttentionFixture& fixture) {
  reference_attention(fixture.args, static_cast<int>(fixture.sequences.size()));
  std::vector<float> expected = fixture.out;
  std::fill(fixture.out.begin(), fixture.out.end(), -7.0f);
  return expected;
}

class AttentionGqaTest : public ::testing::TestWithParam<Isa> {
 protected:
  const AttentionKernels& kernels() const { return attention_kernels(GetParam()); }

  void expect_reference(const AttentionCase& c, const std::vector<std::array<int, 3>>& cuts) {
    AttentionFixture fixture(c);
    const std::vector<float> expected = reference_output(fixture);
    for (const auto& [tokens, heads, parts] : cuts) {
      std::fill(fixture.out.begin(), fixture.out.end(), -7.0f);
      run_cut(kernels(), fixture, tokens, heads, parts);
      ASSERT_EQ(first_difference(fixture.out, expected), -1)
          << kernels().name << " head_dim " << c.head_dim << " group " << c.group << " cache "
          << name_of(c.cache_dtype) << " length " << c.lengths[0].first << "+"
          << c.lengths[0].second << " tokens " << tokens << " heads " << heads << " parts "
          << parts;
    }
  }
};

TEST_P(AttentionGqaTest, RunsTheBuildThatWasAskedFor) {
  const std::string_view expected = GetParam() == Isa::kAvx512Vnni ? "avx512" : name_of(GetParam());
  EXPECT_EQ(kernels().name, expected);
}

TEST_P(AttentionGqaTest, HeadSizesGroupsAndCacheTypes) {
  for (const int head_dim : {5, 16, 24, 32, 64, 80, 128}) {
    for (const int group : {1, 3, 4, 7}) {
      for (const DType cache : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
        const AttentionCase c{.head_dim = head_dim,
                              .num_kv_heads = 2,
                              .group = group,
                              .cache_dtype = cache,
                              .lengths = {{37, 1}, {0, 21}}};
        expect_reference(c, {{12 / group, group, 1}, {1, group, 4}});
      }
    }
  }
}

TEST_P(AttentionGqaTest, LengthsOfDecode) {
  for (const int length : {1, 2, 15, 16, 17, 255, 256, 257, 258, 600, 4100}) {
    for (const DType cache : {DType::kF16, DType::kI8}) {
      const AttentionCase c{.head_dim = 32,
                            .num_kv_heads = 1,
                            .group = 3,
                            .block_size = 64,
                            .cache_dtype = cache,
                            .lengths = {{length - 1, 1}}};
      expect_reference(c, {{1, 3, 1}, {1, 3, 2}, {1, 3, 4}, {1, 3, 8}, {1, 2, 16}});
    }
  }
}

TEST_P(AttentionGqaTest, ChunksOfPrefill) {
  for (const int block_size : {16, 32, 64}) {
    const AttentionCase c{.head_dim = 16,
                          .num_kv_heads = 1,
                          .group = 1,
                          .block_size = block_size,
                          .lengths = {{0, 290}, {250, 20}, {3, 9}}};
    expect_reference(c, {{12, 1, 1}, {7, 1, 1}, {1, 1, 2}, {5, 1, 16}, {8, 1, 4}});
  }
}

TEST_P(AttentionGqaTest, RoundsToTheActivationsType) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const AttentionCase c{
        .head_dim = 64, .num_kv_heads = 2, .group = 4, .dtype = dtype, .lengths = {{70, 3}}};
    expect_reference(c, {{3, 4, 1}, {2, 3, 2}});
  }
}

TEST_P(AttentionGqaTest, LargeScoresMoveTheMaximum) {
  const AttentionCase c{
      .head_dim = 32, .num_kv_heads = 1, .group = 3, .lengths = {{700, 4}}, .magnitude = 40.0f};
  expect_reference(c, {{4, 3, 1}, {2, 3, 4}, {1, 1, 16}});
}

// What later tokens of a prompt have in the cache is nothing to earlier ones, whatever it is.
TEST_P(AttentionGqaTest, LaterPositionsChangeNothing) {
  for (const DType cache : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    for (const auto& [head_dim, group] :
         {std::pair{64, 1}, std::pair{64, 3}, std::pair{16, 8}, std::pair{5, 4}}) {
      AttentionFixture fixture({.head_dim = head_dim,
                                .num_kv_heads = 1,
                                .group = group,
                                .cache_dtype = cache,
                                .lengths = {{0, 40}}});
      const std::vector<float> expected = reference_output(fixture);
      for (const int position : {37, 33, 31, 18, 17, 16, 10, 3, 1}) {
        fixture.poison(position);
        std::fill(fixture.out.begin(), fixture.out.end(), -7.0f);
        run_cut(kernels(), fixture, 12 / group, group, 1);
        const auto seen = static_cast<std::ptrdiff_t>(position * fixture.args.out_stride);
        ASSERT_EQ(first_difference({fixture.out.begin(), fixture.out.begin() + seen},
                                   {expected.begin(), expected.begin() + seen}),
                  -1)
            << kernels().name << " head_dim " << head_dim << " group " << group << " cache "
            << name_of(cache) << ", NaN from position " << position << " on";
      }
    }
  }
}

// Chunks of one prompt give what the whole prompt gives.
TEST_P(AttentionGqaTest, ChunksAreEqualToTheWholePrompt) {
  const AttentionCase c{.head_dim = 64, .num_kv_heads = 1, .group = 3, .lengths = {{0, 200}}};
  AttentionFixture fixture(c);
  run_cut(kernels(), fixture, 4, 3, 1);
  const std::vector<float> whole = fixture.out;
  for (const int chunk : {1, 7, 64}) {
    std::fill(fixture.out.begin(), fixture.out.end(), -7.0f);
    std::vector<AttentionSequence> chunks;
    for (int begin = 0; begin < 200; begin += chunk) {
      chunks.push_back(
          {begin, std::min(chunk, 200 - begin), begin, fixture.sequences[0].block_table});
    }
    std::vector<AttentionSequence> saved = chunks;
    std::swap(fixture.sequences, chunks);
    fixture.args.sequences = fixture.sequences.data();
    run_cut(kernels(), fixture, 3, 3, 2);
    std::swap(fixture.sequences, chunks);
    ASSERT_EQ(first_difference(fixture.out, whole), -1) << "chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionGqaTest,
                         ::testing::ValuesIn(available_isas(detect_cpu_features())),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Plain softmax attention in double precision, from the keys and values before rounding.
std::vector<double> exact_attention(const AttentionFixture& fixture, int64_t position, int head,
                                    int64_t row) {
  const KvLayout& layout = fixture.cache.layout;
  const int kv_head = head / (fixture.args.num_heads / layout.num_kv_heads);
  const int64_t width = int64_t{layout.num_kv_heads} * layout.head_dim;
  const float* q = fixture.q.data() + row * fixture.args.q_stride + head * layout.head_dim;
  std::vector<double> weights;
  double sum = 0;
  for (int64_t p = 0; p <= position; ++p) {
    double score = 0;
    for (int d = 0; d < layout.head_dim; ++d) {
      score += static_cast<double>(q[d]) *
               fixture.k[static_cast<size_t>(p * width + kv_head * layout.head_dim + d)];
    }
    weights.push_back(std::exp(score * fixture.args.scale));
    sum += weights.back();
  }
  std::vector<double> result(static_cast<size_t>(layout.head_dim));
  for (size_t p = 0; p < weights.size(); ++p) {
    for (size_t d = 0; d < result.size(); ++d) {
      result[d] += weights[p] / sum *
                   fixture.v[p * static_cast<size_t>(width) +
                             static_cast<size_t>(kv_head * layout.head_dim) + d];
    }
  }
  return result;
}

double largest_error(DType cache_dtype) {
  const AttentionCase c{.head_dim = 48,
                        .num_kv_heads = 2,
                        .group = 2,
                        .cache_dtype = cache_dtype,
                        .lengths = {{0, 333}}};
  AttentionFixture fixture(c);
  reference_attention(fixture.args, 1);
  double worst = 0;
  for (const int token : {0, 1, 15, 16, 100, 255, 256, 332}) {
    for (int head = 0; head < 4; ++head) {
      const auto exact = exact_attention(fixture, token, head, token);
      for (int d = 0; d < 48; ++d) {
        const float actual =
            fixture.out[static_cast<size_t>(token * fixture.args.out_stride + head * 48 + d)];
        worst = std::max(worst, std::fabs(actual - exact[static_cast<size_t>(d)]));
      }
    }
  }
  return worst;
}

TEST(ReferenceAttention, IsSoftmaxAttention) {
  EXPECT_LT(largest_error(DType::kF32), 2e-6);
  EXPECT_LT(largest_error(DType::kF16), 3e-3);
  EXPECT_LT(largest_error(DType::kBF16), 2e-2);
  EXPECT_LT(largest_error(DType::kI8), 4e-2);
}

// The comparison of bytes must see a changed order: leaves merged from left to right, and a leaf's
// positions shifted by one group.
TEST(ReferenceAttention, MutationsOfTheOrderAreSeen) {
  const AttentionCase c{.head_dim = 64, .num_kv_heads = 1, .group = 1, .lengths = {{599, 1}}};
  AttentionFixture fixture(c);
  std::vector<AttentionState> leaves;
  for (int leaf = 0; leaf < 16; ++leaf) {
    leaves.push_back(reference_attention_leaf(fixture.args, fixture.sequences[0], 0,
                                              fixture.q.data(), 599, leaf));
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
  // The kernel's own output is caught as well when a row's leaves are merged in the wrong order.
  const std::vector<float> expected = reference_output(fixture);
  run_cut(attention_kernels(Isa::kPortable), fixture, 1, 1, 4);
  EXPECT_EQ(first_difference(fixture.out, expected), -1);
  std::vector<float> mutated = expected;
  for (int d = 0; d < 64; ++d)
    mutated[static_cast<size_t>(d)] = chain.acc[static_cast<size_t>(d)] / chain.l;
  EXPECT_GE(first_difference(fixture.out, mutated), 0);
}

}  // namespace
}  // namespace millrace
