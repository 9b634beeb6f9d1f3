#include "attention/gqa_plan.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <tuple>

#include "base/cpu.h"
#include "kernels/attention_test_cache.h"

namespace millrace {
namespace {

std::vector<AttentionSequence> sequences_of(
    const std::vector<std::pair<int64_t, int32_t>>& lengths) {
  std::vector<AttentionSequence> sequences;
  int64_t start = 0;
  for (const auto& [computed, query_len] : lengths) {
    sequences.push_back({start, query_len, computed, nullptr});
    start += query_len;
  }
  return sequences;
}

GqaPlan plan_of(const std::vector<AttentionSequence>& sequences, int heads, int kv_heads,
                int threads) {
  GqaPlan plan;
  plan_gqa_attention({sequences, heads, kv_heads, 64, threads}, plan);
  return plan;
}

// Every query row and leaf is in exactly one item; split items have a merge and their own
// workspace.
void expect_complete(const GqaPlan& plan, const std::vector<AttentionSequence>& sequences,
                     int heads, int kv_heads) {
  const int group = heads / kv_heads;
  std::map<std::tuple<int, int, int>, int> leaves;  // (sequence, token, head): leaves covered
  std::map<int64_t, int64_t> roots;                 // workspace pieces: begin, end
  for (const AttentionItem& item : plan.items) {
    EXPECT_LE(item.num_tokens * item.num_heads, kAttentionRows);
    EXPECT_EQ(item.head_begin / group, (item.head_begin + item.num_heads - 1) / group);
    const int width = item.leaf_end - item.leaf_begin;
    EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(width)));
    EXPECT_EQ(item.leaf_begin % width, 0);
    for (int t = 0; t < item.num_tokens; ++t) {
      for (int h = 0; h < item.num_heads; ++h) {
        leaves[{item.sequence, item.token_begin + t, item.head_begin + h}] += width;
      }
    }
    if (width == 16) continue;
    const int64_t floats = item.num_tokens * item.num_heads * attention_root_floats(64);
    EXPECT_GE(item.workspace_offset, 0);
    EXPECT_TRUE(roots.emplace(item.workspace_offset, item.workspace_offset + floats).second);
  }
  int64_t rows = 0;
  for (const AttentionSequence& sequence : sequences) rows += sequence.query_len;
  EXPECT_EQ(static_cast<int64_t>(leaves.size()), rows * heads);
  for (const auto& [row, count] : leaves) EXPECT_EQ(count, 16);
  int64_t end = 0;
  for (const auto& [begin, piece_end] : roots) {
    EXPECT_EQ(begin, end);
    end = piece_end;
  }
  EXPECT_EQ(plan.workspace_bytes, end * 4);
  for (const AttentionMerge& merge : plan.merges) {
    EXPECT_TRUE(roots.contains(merge.workspace_offset));
  }
}

// What a thread may get at most, claiming the costliest item first, over an even share.
double imbalance(const GqaPlan& plan, const std::vector<AttentionSequence>& sequences,
                 int threads) {
  std::vector<double> load(static_cast<size_t>(threads));
  double total = 0;
  for (const AttentionItem& item : plan.items) {
    const auto& sequence = sequences[static_cast<size_t>(item.sequence)];
    const double cost =
        static_cast<double>(sequence.num_computed + item.token_begin + item.num_tokens) *
        item.num_tokens * item.num_heads * (item.leaf_end - item.leaf_begin);
    *std::min_element(load.begin(), load.end()) += cost;
    total += cost;
  }
  return *std::max_element(load.begin(), load.end()) / (total / threads);
}

TEST(GqaPlan, CoversEveryRowOnce) {
  const std::vector<std::vector<std::pair<int64_t, int32_t>>> batches = {
      {{0, 1}},          {{4095, 1}},
      {{0, 512}},        {{100, 7}},
      {{70000, 3}},      {{0, 1}, {5000, 1}, {64, 64}, {31, 2}},
      {{10, 0}, {3, 1}}, {}};
  for (const auto& batch : batches) {
    const auto sequences = sequences_of(batch);
    for (const auto& [heads, kv_heads] :
         {std::pair{9, 3}, {32, 8}, {14, 2}, {16, 16}, {40, 1}, {64, 4}}) {
      for (const int threads : {1, 2, 5, 16}) {
        expect_complete(plan_of(sequences, heads, kv_heads, threads), sequences, heads, kv_heads);
      }
    }
  }
}

TEST(GqaPlan, OneLongSequenceKeepsAllThreadsBusy) {
  const auto sequences = sequences_of({{4095, 1}});
  for (const int threads : {2, 3, 8}) {
    const GqaPlan plan = plan_of(sequences, 9, 3, threads);
    EXPECT_FALSE(plan.merges.empty());
    EXPECT_LT(imbalance(plan, sequences, threads), 1.35) << threads << " threads";
  }
}

TEST(GqaPlan, ManySequencesAreNotSplit) {
  const std::vector<std::pair<int64_t, int32_t>> lengths(16, {500, 1});
  const auto sequences = sequences_of(lengths);
  const GqaPlan plan = plan_of(sequences, 9, 3, 2);
  EXPECT_TRUE(plan.merges.empty());
  EXPECT_EQ(plan.items.size(), 48u);
  EXPECT_EQ(plan.workspace_bytes, 0);
}

TEST(GqaPlan, OneThreadSplitsNothing) {
  EXPECT_TRUE(plan_of(sequences_of({{100000, 1}}), 9, 3, 1).merges.empty());
}

TEST(GqaPlan, CountsWork) {
  const GqaPlan plan = plan_of(sequences_of({{10, 2}}), 4, 2, 1);
  EXPECT_EQ(plan.multiply_adds, 2.0 * 64 * 4 * (11 + 12));
  EXPECT_EQ(plan.positions_read, 12);
}

TEST(GqaPlan, AllCutsGiveTheSameBits) {
  const AttentionCase c{
      .head_dim = 64, .num_kv_heads = 3, .group = 3, .lengths = {{1500, 1}, {0, 40}, {299, 3}}};
  AttentionFixture fixture(c);
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 5, 32}) {
    const GqaPlan plan = plan_of(fixture.sequences, 9, 3, threads);
    std::vector<float> workspace(static_cast<size_t>(plan.workspace_bytes / 4));
    std::vector<std::byte> scratch(static_cast<size_t>(plan.scratch_bytes));
    AttentionArgs args = fixture.args;
    args.workspace = workspace.data();
    std::fill(fixture.out.begin(), fixture.out.end(), 0.0f);
    const auto& kernels = attention_kernels(available_isas(detect_cpu_features()).back());
    for (const AttentionItem& item : plan.items) kernels.run_item(args, item, scratch.data());
    for (const AttentionMerge& merge : plan.merges) kernels.merge(args, merge, scratch.data());
    if (first.empty()) first = fixture.out;
    EXPECT_EQ(std::memcmp(first.data(), fixture.out.data(), first.size() * 4), 0) << threads;
  }
}

}  // namespace
}  // namespace millrace
