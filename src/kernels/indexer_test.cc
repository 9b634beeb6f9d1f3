// Every instruction set's indexer against reference_indexer.h: scores and cached keys byte for
// byte, selections however the work is cut.
#include "kernels/indexer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/indexer_test_cache.h"

namespace millrace {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Memory that starts on a line.
struct Lines {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  explicit Lines(int64_t bytes) : lines(static_cast<size_t>((bytes + 63) / 64)) {
    std::memset(lines.data(), 0xff, lines.size() * 64);
  }
  std::byte* data() { return lines.data()->bytes; }
  std::vector<Line> lines;
};

// The arguments with packed queries: some heads of some rows at a time, in one call for the fewest.
struct PackedArgs {
  PackedArgs(const IndexerKernels& kernels, const IndexerFixture& fixture, int rows_at_once)
      : args(fixture.args),
        queries(num_rows(fixture) *
                index_query_bytes(args.num_heads, args.cache.index_dim, args.cache.index_dtype)) {
    args.queries = queries.data();
    const int heads_at_once = rows_at_once == 1 ? kIndexHeadPad : args.num_heads;
    for (int64_t row = 0; row < num_rows(fixture); row += rows_at_once) {
      const auto rows =
          static_cast<int32_t>(std::min<int64_t>(rows_at_once, num_rows(fixture) - row));
      for (int head = 0; head < args.num_heads; head += heads_at_once) {
        kernels.pack(args, {row, rows, head, std::min(head + heads_at_once, args.num_heads)},
                     nullptr);
      }
    }
  }
  static int64_t num_rows(const IndexerFixture& fixture) {
    const AttentionSequence& last = fixture.sequences.back();
    return last.query_start + last.query_len;
  }
  IndexerArgs args;
  Lines queries;
};

// Runs all queries: items of up to `tokens` tokens, or, with cuts (ascending multiples of 16, the
// first of them 0), one item of each token between two cuts.
void run_cut(const IndexerKernels& kernels, IndexerFixture& fixture, int tokens,
             const std::vector<int64_t>& cuts = {}) {
  PackedArgs packed(kernels, fixture, tokens);
  IndexerArgs& args = packed.args;
  const int64_t part_bytes = index_candidates_bytes(args.topk);
  Lines scratch(indexer_scratch_bytes(args.topk));
  Lines workspace(part_bytes * static_cast<int64_t>(cuts.size() + 1));
  args.workspace = workspace.data();
  for (size_t s = 0; s < fixture.sequences.size(); ++s) {
    const AttentionSequence& sequence = fixture.sequences[s];
    for (int token = 0; token < sequence.query_len; token += tokens) {
      IndexItem item{.sequence = static_cast<int32_t>(s), .token_begin = token};
      item.num_tokens = std::min(tokens, sequence.query_len - token);
      item.position_end = sequence.num_computed + token + item.num_tokens;
      if (cuts.empty()) {
        kernels.run_item(args, item, scratch.data());
        continue;
      }
      for (size_t i = 0; i < cuts.size(); ++i) {
        item.position_begin = cuts[i];
        item.position_end = i + 1 < cuts.size() ? cuts[i + 1] : int64_t{1} << 40;
        item.workspace_offset = part_bytes * static_cast<int64_t>(i + 1);
        kernels.run_item(args, item, scratch.data());
      }
      kernels.merge(args, {item.sequence, token, static_cast<int32_t>(cuts.size()), part_bytes},
                    scratch.data());
    }
  }
}

std::vector<float> kernel_scores(const IndexerKernels& kernels, const IndexerFixture& fixture,
                                 int sequence, int token) {
  const PackedArgs packed(kernels, fixture, 1);
  const int64_t visible = fixture.sequences[static_cast<size_t>(sequence)].num_computed + token + 1;
  std::vector<float> scores(static_cast<size_t>(visible), -7.0f);
  kernels.score(packed.args, {sequence, token, 1, 0, visible, -1}, scores.data(), visible);
  return scores;
}

// Index of the first that differs in bits (all NaN are one), or -1.
int first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return static_cast<int>(i);
  }
  return -1;
}

struct Selection {
  std::vector<int32_t> positions;
  std::vector<int32_t> leaf_begin;
  bool operator==(const Selection&) const = default;
};

Selection take_selection(IndexerFixture& fixture) {
  Selection taken{fixture.positions, fixture.leaf_begin};
  fixture.clear_selection();
  return taken;
}

Selection reference_selection(IndexerFixture& fixture) {
  reference_indexer(fixture.args, static_cast<int>(fixture.sequences.size()));
  return take_selection(fixture);
}

class IndexerTest : public ::testing::TestWithParam<Isa> {
 protected:
  const IndexerKernels& kernels() const { return indexer_kernels(GetParam()); }

  // Whether the cache of `actual`, written by the kernels from one of `cuts` (tokens) to the next,
  // has the bytes of that of `expected`, written by the reference at once. `write`: all but the
  // cache.
  bool writes_the_same(IndexerFixture& expected, IndexerFixture& actual, IndexWriteArgs write,
                       const std::vector<int64_t>& cuts) {
    std::ranges::fill(expected.pool, std::byte{0xcd});
    std::ranges::fill(actual.pool, std::byte{0xcd});
    write.cache = expected.args.cache;
    reference_index_write(write, cuts.front(), cuts.back());
    write.cache = actual.args.cache;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) kernels().write(write, cuts[i], cuts[i + 1]);
    return std::ranges::equal(expected.pool, actual.pool);
  }

  // Items of 1, 3 and 4 tokens, and parts.
  void expect_reference(IndexerFixture& fixture, const std::string& what) {
    const Selection expected = reference_selection(fixture);
    for (const int tokens : {1, 3, 4}) {
      run_cut(kernels(), fixture, tokens);
      ASSERT_TRUE(take_selection(fixture) == expected) << what << ", items of " << tokens;
    }
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{0, 16}, {0, 32, 48, 176}, {0, 160, 4000}}) {
      run_cut(kernels(), fixture, 1, cuts);
      ASSERT_TRUE(take_selection(fixture) == expected) << what << ", " << cuts.size() << " parts";
    }
  }
};

TEST_P(IndexerTest, RunsTheBuildThatWasAskedFor) { EXPECT_EQ(kernels().name, name_of(GetParam())); }

TEST_P(IndexerTest, ScoresOfAllShapes) {
  for (const DType dtype : {DType::kI8, DType::kF32, DType::kBF16}) {
    for (const int heads : {1, 3, 4, 32, 33, 64}) {
      for (const int dim : {4, 20, 32, 64, 128}) {
        for (const int block_size : {16, 48}) {
          const IndexerCase c{.num_heads = heads,
                              .dim = dim,
                              .block_size = block_size,
                              .dtype = dtype,
                              .lengths = {{44, 1}, {0, 1}}};
          IndexerFixture fixture(c);
          for (int s = 0; s < 2; ++s) {
            const auto expected =
                reference_index_scores(fixture.args, fixture.sequences[static_cast<size_t>(s)], 0);
            ASSERT_EQ(first_difference(kernel_scores(kernels(), fixture, s, 0), expected), -1)
                << name_of(dtype) << " heads " << heads << " dim " << dim;
          }
        }
      }
    }
  }
}

TEST_P(IndexerTest, ScoresOfSpecialNumbers) {
  for (const DType dtype : {DType::kI8, DType::kF32, DType::kBF16}) {
    const IndexerCase c{.num_heads = 9, .dim = 32, .topk = 5, .dtype = dtype, .lengths = {{99, 2}}};
    IndexerFixture fixture(c);
    const auto key = [&](int p, int d) -> float& {
      return fixture.keys[static_cast<size_t>(p * c.dim + d)];
    };
    key(3, 7) = kNan;
    key(4, 31) = kInf;
    key(5, 0) = -kInf;
    for (int d = 0; d < c.dim; ++d) {
      key(6, d) = 0;
      key(7, d) = -0.0f;
      key(8, d) = 1e-45f;
      key(9, d) = 3e38f;
    }
    fixture.write_keys();
    for (int d = 0; d < c.dim; ++d) fixture.q[static_cast<size_t>(2 * c.dim + d)] = 0;
    fixture.weights[1] = -0.0f;
    fixture.weights[4] = 0.0f;
    for (int token = 0; token < 2; ++token) {
      const auto expected = reference_index_scores(fixture.args, fixture.sequences[0], token);
      EXPECT_TRUE(std::isnan(expected[3]));
      EXPECT_EQ(first_difference(kernel_scores(kernels(), fixture, 0, token), expected), -1)
          << name_of(dtype);
    }
    expect_reference(fixture, "special keys");
    fixture.q[static_cast<size_t>(3 * c.dim)] = kNan;
    expect_reference(fixture, "a NaN in a query");
    fixture.weights[2] = kInf;
    expect_reference(fixture, "an infinite weight");
  }
}

TEST_P(IndexerTest, HistoriesAroundK) {
  for (const DType dtype : {DType::kI8, DType::kF32, DType::kBF16}) {
    for (const int k : {1, 16, 64}) {
      for (const int block_size : {16, 48}) {
        const int64_t size = k;
        const IndexerCase c{.num_heads = 3,
                            .topk = k,
                            .block_size = block_size,
                            .dtype = dtype,
                            .lengths = {{0, 1},
                                        {std::max<int64_t>(0, size - 2), 1},
                                        {size - 1, 1},
                                        {size, 1},
                                        {3 * size - 1, 1},
                                        {4 * size - 1, 1},
                                        {4 * size, 1},
                                        {5 * size + 2, 1},
                                        {300, 1}}};
        IndexerFixture fixture(c);
        expect_reference(fixture, std::string(name_of(dtype)) + " k " + std::to_string(k));
      }
    }
  }
}

TEST_P(IndexerTest, TwoThousandOfLongHistories) {
  for (const int levels : {0, 1}) {
    const IndexerCase c{.num_heads = 2,
                        .dim = 4,
                        .topk = 2048,
                        .lengths = {{2046, 3}, {6143, 1}, {12345, 2}},
                        .levels = levels};
    IndexerFixture fixture(c);
    expect_reference(fixture, "levels " + std::to_string(levels));
  }
}

TEST_P(IndexerTest, PrefillTokensSeeDifferentLengths) {
  for (const DType dtype : {DType::kI8, DType::kF32}) {
    const IndexerCase c{.num_heads = 3,
                        .topk = 16,
                        .block_size = 48,
                        .dtype = dtype,
                        .lengths = {{0, 70}, {13, 39}, {250, 9}}};
    IndexerFixture fixture(c);
    expect_reference(fixture, "prefill");
  }
}

TEST_P(IndexerTest, TiesGoToTheLowerPosition) {
  for (const DType dtype : {DType::kI8, DType::kF32, DType::kBF16}) {
    for (const int k : {1, 16, 100}) {
      const IndexerCase c{
          .num_heads = 3, .dim = 4, .topk = k, .dtype = dtype, .lengths = {{1500, 2}}, .levels = 1};
      IndexerFixture fixture(c);
      expect_reference(fixture, "few levels");
      // Relu cuts every head: all scores are zero, of both signs.
      for (float& x : fixture.q) x = std::fabs(x);
      for (float& x : fixture.keys) x = -std::fabs(x);
      fixture.write_keys();
      expect_reference(fixture, "all zero");
      for (float& x : fixture.keys) x = 1;
      fixture.write_keys();
      expect_reference(fixture, "all equal");
    }
  }
}

// Scores that round to -0 (a tiny key scale and a negative weight) tie with those that are +0.
TEST_P(IndexerTest, NegativeZeroIsZero) {
  IndexerFixture fixture({.num_heads = 1, .dim = 4, .topk = 40, .lengths = {{499, 1}}});
  std::fill(fixture.q.begin(), fixture.q.end(), 1.0f);
  fixture.weights[0] = -1e-6f;
  for (size_t p = 0; p < 500; ++p) {
    std::fill_n(fixture.keys.begin() + 4 * static_cast<int64_t>(p), 4,
                p % 3 == 0 ? 0.0f : 1.8e-43f);
  }
  fixture.write_keys();
  const auto scores = reference_index_scores(fixture.args, fixture.sequences[0], 0);
  EXPECT_TRUE(scores[1] == 0 && std::signbit(scores[1]) && !std::signbit(scores[0]));
  expect_reference(fixture, "zeros of both signs");
}

// Float keys of 4 elements and 2 heads, such that a position's score is half the number given.
void set_scores(IndexerFixture& fixture, const std::vector<float>& scores) {
  std::fill(fixture.q.begin(), fixture.q.end(), 0.0f);
  fixture.q[0] = 1;
  fixture.q[4] = -1;
  fixture.weights[0] = 1;
  fixture.weights[1] = -1;
  std::fill(fixture.keys.begin(), fixture.keys.end(), 0.0f);
  for (size_t p = 0; p < scores.size(); ++p) fixture.keys[4 * p] = scores[p];
  fixture.write_keys();
}

std::vector<float> some_scores(int kind, int n, std::mt19937& generator) {
  std::vector<float> scores(static_cast<size_t>(n));
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<uint32_t> any_bits;
  const float choices[] = {kNan, kInf, -kInf, 0.0f, -0.0f, 1.0f, -1.0f, 1e-45f, -1e-45f, 3e38f};
  for (int i = 0; i < n; ++i) {
    const auto value = static_cast<float>(i);
    scores[static_cast<size_t>(i)] = kind == 0   ? normal(generator)
                                     : kind == 1 ? value
                                     : kind == 2 ? -value
                                     : kind == 3 ? std::bit_cast<float>(any_bits(generator))
                                     : kind == 4 ? choices[any_bits(generator) % 10]
                                     : kind == 5 ? std::floor(normal(generator))
                                     : kind == 6 ? (i % 100 == 0 ? 1e30f : -kInf)
                                     : kind == 7 ? 1.0f + 1e-7f * static_cast<float>(i % 7)
                                     // Equal at the places that samples are taken from, first of
                                     // 1024, then of what is left of them; extreme to either side.
                                     : i % 16 > 1 ? 1.0f + value
                                     : kind == 8  ? static_cast<float>(i % 16 - 2)
                                                  : 1e30f / static_cast<float>(1 + i % 16);
  }
  return scores;
}

TEST_P(IndexerTest, ScoresOfAnyDistribution) {
  std::mt19937 generator(7);
  for (const int n : {1000, 1024, 9000}) {
    for (const int k : {1, 7, 500, 1200}) {
      const IndexerCase c{
          .num_heads = 2, .dim = 4, .topk = k, .dtype = DType::kF32, .lengths = {{n - 1, 1}}};
      IndexerFixture fixture(c);
      for (int kind = 0; kind < 10; ++kind) {
        set_scores(fixture, some_scores(kind, n, generator));
        const Selection expected = reference_selection(fixture);
        for (const std::vector<int64_t>& cuts :
             {std::vector<int64_t>{}, {0, 4000}, {0, 16, 528, 3008, 3024, 7008}}) {
          run_cut(kernels(), fixture, 1, cuts);
          ASSERT_TRUE(take_selection(fixture) == expected)
              << "kind " << kind << " n " << n << " k " << k << " parts " << cuts.size();
        }
      }
    }
  }
}

TEST_P(IndexerTest, WritesTheReferencesBytes) {
  for (const DType dtype : {DType::kI8, DType::kF32, DType::kBF16}) {
    for (const int dim : {4, 20, 32, 128}) {
      const IndexerCase c{.dim = dim, .block_size = 48, .dtype = dtype, .lengths = {{60, 1}}};
      IndexerFixture expected(c);
      IndexerFixture actual(c);
      std::vector<float> keys = actual.draw(61 * (dim + 3));
      const float specials[] = {kNan, kInf, -kInf, 1e-45f, 3e38f, -0.0f};
      for (size_t i = 0; i < 6; ++i) keys[i * static_cast<size_t>(dim + 3) + i % 4] = specials[i];
      std::fill_n(keys.begin() + 10 * (dim + 3), dim, 0.0f);
      std::fill_n(keys.begin() + 11 * (dim + 3), dim, 1e-44f);
      std::vector<int64_t> slots = actual.slots;
      slots[20] = -1;
      ASSERT_TRUE(
          writes_the_same(expected, actual, {keys.data(), dim + 3, slots.data(), {}}, {2, 33, 60}))
          << name_of(dtype) << " dim " << dim;
    }
  }
}

// x moved by so many floats, up or down.
float moved(float x, int64_t floats) {
  const float towards = floats < 0 ? -kInf : kInf;
  for (int64_t i = 0; i < std::abs(floats); ++i) x = std::nextafter(x, towards);
  return x;
}

// Elements whose quotient by the scale is a tie or next to one, for all codes and many scales. In
// every second key all of them; in the others one of 16, so that the others do not decide how its
// code is made, on both sides of the margin where that changes.
TEST_P(IndexerTest, CodesNextToTies) {
  const int dim = 128;
  const int64_t tokens = 800;
  const IndexerCase c{
      .dim = dim, .block_size = 16, .dtype = DType::kI8, .lengths = {{tokens - 1, 1}}};
  IndexerFixture expected(c);
  IndexerFixture actual(c);
  const std::vector<float> random = actual.draw(tokens);
  std::vector<float> keys(static_cast<size_t>(tokens * dim));
  for (int64_t t = 0; t < tokens; ++t) {
    const float magnitude = std::ldexp(1.0f + std::fabs(random[static_cast<size_t>(t)]),
                                       static_cast<int>(t % 250) - 130);
    float* key = keys.data() + t * dim;
    key[0] = magnitude;
    const float scale = magnitude / 127.0f;
    for (int64_t d = 1; d < dim; ++d) {
      const float tie = (static_cast<float>(d) - 0.5f) * scale;
      if (t % 2 == 0) {
        key[d] = moved(tie, (t + d) % 7 - 3);
      } else if (d % 16 == t / 2 % 16) {
        key[d] = moved(tie, t / 32 % 17 - 8);
      } else {
        key[d] = static_cast<float>(d) * scale;
      }
      if (d % 3 == 0) key[d] = -key[d];
    }
  }
  EXPECT_TRUE(
      writes_the_same(expected, actual, {keys.data(), dim, actual.slots.data(), {}}, {0, tokens}));
}

INSTANTIATE_TEST_SUITE_P(Isas, IndexerTest,
                         ::testing::ValuesIn(available_isas(detect_cpu_features())),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(ReferenceIndexer, IsTheFormulaInDoublePrecision) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    const IndexerCase c{.num_heads = 8, .dim = 64, .dtype = dtype, .lengths = {{199, 1}}};
    IndexerFixture fixture(c);
    const auto scores = reference_index_scores(fixture.args, fixture.sequences[0], 0);
    double worst = 0;
    for (size_t p = 0; p < scores.size(); ++p) {
      double exact = 0;
      for (size_t h = 0; h < 8; ++h) {
        double dot = 0;
        for (size_t d = 0; d < 64; ++d) {
          dot += double{fixture.q[h * 64 + d]} * double{fixture.keys[p * 64 + d]};
        }
        exact += double{fixture.weights[h]} * std::max(0.0, dot / 8);
      }
      worst = std::max(worst, std::fabs(exact - double{scores[p]}));
    }
    EXPECT_LT(worst, dtype == DType::kF32 ? 1e-5 : dtype == DType::kBF16 ? 2e-2 : 1e-1);
  }
}

// What the comparisons must see: heads in another order, and ties to the higher position.
TEST(ReferenceIndexer, MutationsAreSeen) {
  const IndexerCase c{.num_heads = 8, .dim = 32, .lengths = {{299, 1}}};
  IndexerFixture fixture(c);
  const auto scores = reference_index_scores(fixture.args, fixture.sequences[0], 0);
  EXPECT_EQ(first_difference(kernel_scores(indexer_kernels(Isa::kPortable), fixture, 0, 0), scores),
            -1);
  for (int i = 0; i < 4; ++i) {
    std::swap(fixture.weights[static_cast<size_t>(i)], fixture.weights[static_cast<size_t>(7 - i)]);
    std::swap_ranges(fixture.q.begin() + 32 * i, fixture.q.begin() + 32 * (i + 1),
                     fixture.q.begin() + 32 * (7 - i));
  }
  EXPECT_GE(first_difference(kernel_scores(indexer_kernels(Isa::kPortable), fixture, 0, 0), scores),
            0);

  const std::vector<float> tied{1, 2, 2, 2, -0.0f, 0.0f, 3, kNan};
  EXPECT_EQ(reference_topk(tied, 3), (std::vector<int32_t>{1, 2, 6}));
  EXPECT_EQ(reference_topk(tied, 6), (std::vector<int32_t>{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(reference_topk(tied, 9).size(), 8u);
  IndexerFixture ties({.num_heads = 2, .dim = 4, .topk = 16, .lengths = {{500, 1}}, .levels = 1});
  run_cut(indexer_kernels(Isa::kPortable), ties, 1);
  const Selection right = take_selection(ties);
  auto reversed = reference_index_scores(ties.args, ties.sequences[0], 0);
  std::reverse(reversed.begin(), reversed.end());
  std::vector<int32_t> higher;
  for (const int32_t p : reference_topk(reversed, 16)) higher.push_back(500 - p);
  std::reverse(higher.begin(), higher.end());
  reference_write_selection(ties.args, 0, higher);
  EXPECT_TRUE(take_selection(ties) != right);
}

}  // namespace
}  // namespace millrace
