// Plans of latent attention and of the indexer: every token, head, leaf and position exactly once.
#include "attention/mla_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

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

struct Step {
  std::vector<std::pair<int64_t, int32_t>> lengths;  // computed, queries
  int heads;
  int topk;
  int threads;
  int index_heads = 32;
};

const Step kSteps[] = {
    {{{0, 1}}, 4, 16, 1},
    {{{20000, 1}}, 16, 2048, 2},
    {{{20000, 1}}, 64, 2048, 2},
    {{{100, 1}, {5000, 1}, {0, 7}}, 20, 64, 4},
    {{{0, 600}, {3000, 1}}, 128, 2048, 2},
    {{{4096, 512}}, 16, 2048, 2},
    {{{62, 5}}, 4, 64, 1, 9},
    {{{62, 5}}, 4, 64, 8, 33},
    {{{50, 3}, {0, 1}}, 130, 0, 3},
};

MlaPlanInput input_of(const std::vector<AttentionSequence>& sequences, const Step& step) {
  return {.sequences = sequences,
          .shape = {.num_heads = step.heads,
                    .latent = 512,
                    .rope = 64,
                    .topk = step.topk,
                    .index_heads = step.index_heads,
                    .index_dim = 128},
          .num_threads = step.threads};
}

TEST(MlaPlan, EveryHeadAndLeafOnceAndRootsDoNotOverlap) {
  for (const Step& step : kSteps) {
    const auto sequences = sequences_of(step.lengths);
    MlaPlan plan;
    plan_mla_attention(input_of(sequences, step), plan);
    int64_t next_token = 0;
    int64_t num_tokens = 0;
    for (const auto& [computed, queries] : step.lengths) num_tokens += queries;
    std::set<std::tuple<int, int, int, int>> seen;  // sequence, token, head, leaf
    for (const MlaRound& round : plan.rounds) {
      EXPECT_EQ(round.token_begin, next_token);
      next_token = round.token_end;
      std::map<int64_t, int64_t> roots;  // begin -> end, of this round
      for (int64_t i = round.item_begin; i < round.item_end; ++i) {
        const MlaItem& item = plan.items[static_cast<size_t>(i)];
        const int64_t row = sequences[static_cast<size_t>(item.sequence)].query_start + item.token;
        EXPECT_GE(row, round.token_begin);
        EXPECT_LT(row, round.token_end);
        EXPECT_EQ(item.head_begin % 16, 0);
        EXPECT_LE(item.num_heads, 16 * kMlaMostGroups);
        for (int head = item.head_begin; head < item.head_begin + item.num_heads; ++head) {
          for (int leaf = item.leaf_begin; leaf < item.leaf_end; ++leaf) {
            EXPECT_TRUE(seen.insert({item.sequence, item.token, head, leaf}).second);
          }
        }
        if (item.leaf_end - item.leaf_begin == 16) continue;
        EXPECT_EQ(item.leaf_begin % (item.leaf_end - item.leaf_begin), 0);
        const int64_t size = (item.num_heads + 15) / 16 * mla_root_floats(512);
        roots[item.workspace_offset] = item.workspace_offset + size;
      }
      int64_t end = 0;
      for (const auto& [begin, stop] : roots) {
        EXPECT_GE(begin, end);
        end = stop;
      }
      EXPECT_LE(end * 4, plan.workspace_bytes);
      int64_t parts = 0;
      for (int64_t i = round.merge_begin; i < round.merge_end; ++i) {
        parts += plan.merges[static_cast<size_t>(i)].num_parts;
      }
      EXPECT_EQ(parts, static_cast<int64_t>(roots.size()));
    }
    EXPECT_EQ(next_token, num_tokens);
    EXPECT_EQ(static_cast<int64_t>(seen.size()), num_tokens * step.heads * 16);
  }
}

TEST(MlaPlan, OneTokenIsSharedByAllThreads) {
  const auto sequences = sequences_of({{20000, 1}});
  MlaPlan plan;
  plan_mla_attention(input_of(sequences, {{{20000, 1}}, 16, 2048, 2}), plan);
  EXPECT_GE(plan.items.size(), 4u);
  IndexPlan index;
  plan_indexer(input_of(sequences, {{{20000, 1}}, 16, 2048, 2}), index);
  ASSERT_EQ(index.items.size(), 2u);
  ASSERT_EQ(index.merges.size(), 1u);
  EXPECT_EQ(index.merges[0].num_parts, 2);
  EXPECT_EQ(index.packs.size(), 4u);
}

// Parts of unequal sequences outnumber the threads, so that none has the longest one for itself.
TEST(IndexPlan, AFewTokensAreSharedByAllThreads) {
  const std::vector<std::pair<int64_t, int32_t>> lengths = {{100000, 1}, {3000, 1}};
  IndexPlan plan;
  plan_indexer(input_of(sequences_of(lengths), {lengths, 16, 2048, 2}), plan);
  ASSERT_EQ(plan.merges.size(), 2u);
  EXPECT_EQ(plan.merges[0].num_parts, 2);
}

TEST(IndexPlan, TheMostRecentKeysNeedNoQueries) {
  const auto sequences = sequences_of({{5000, 1}});
  MlaPlanInput input = input_of(sequences, {{{5000, 1}}, 16, 2048, 2});
  input.shape.recent_keys = true;
  IndexPlan plan;
  plan_indexer(input, plan);
  EXPECT_TRUE(plan.packs.empty());
}

TEST(IndexPlan, EveryPositionThatATokenSeesOnce) {
  for (const Step& step : kSteps) {
    if (step.topk == 0) continue;
    const auto sequences = sequences_of(step.lengths);
    IndexPlan plan;
    plan_indexer(input_of(sequences, step), plan);
    std::map<std::pair<int, int>, std::map<int64_t, int64_t>> ranges;
    for (const IndexItem& item : plan.items) {
      EXPECT_EQ(item.position_begin % 16, 0);
      EXPECT_LE(item.num_tokens, kIndexTokens);
      if (item.workspace_offset >= 0) {
        EXPECT_EQ(item.num_tokens, 1);
        EXPECT_LE(item.workspace_offset + index_candidates_bytes(step.topk), plan.workspace_bytes);
      }
      for (int token = item.token_begin; token < item.token_begin + item.num_tokens; ++token) {
        ranges[{item.sequence, token}][item.position_begin] = item.position_end;
      }
    }
    size_t num_tokens = 0;
    for (const AttentionSequence& sequence : sequences) {
      num_tokens += static_cast<size_t>(sequence.query_len);
    }
    EXPECT_EQ(ranges.size(), num_tokens);
    for (const auto& [key, parts] : ranges) {
      int64_t end = 0;
      for (const auto& [begin, stop] : parts) {
        EXPECT_EQ(begin, end);
        end = stop;
      }
      EXPECT_GE(end, sequences[static_cast<size_t>(key.first)].num_computed + key.second + 1);
    }
    // Every head of every scored token is packed once.
    std::set<std::pair<int64_t, int>> packed;
    for (const IndexPack& pack : plan.packs) {
      EXPECT_EQ(pack.head_begin % kIndexHeadPad, 0);
      EXPECT_LE(pack.head_end, step.index_heads);
      for (int64_t row = pack.row_begin; row < pack.row_begin + pack.num_rows; ++row) {
        for (int head = pack.head_begin; head < pack.head_end; ++head) {
          EXPECT_TRUE(packed.insert({row, head}).second);
        }
      }
    }
    size_t num_scored = 0;
    for (const AttentionSequence& sequence : sequences) {
      for (int64_t t = 0; t < sequence.query_len; ++t) {
        if (sequence.num_computed + t + 1 <= step.topk) continue;
        ++num_scored;
        EXPECT_TRUE(packed.contains({sequence.query_start + t, 0}));
      }
    }
    EXPECT_EQ(packed.size(), num_scored * static_cast<size_t>(step.index_heads));
    for (const IndexMerge& merge : plan.merges) {
      EXPECT_EQ(static_cast<size_t>(merge.num_parts),
                (ranges[{merge.sequence, merge.token}].size()));
    }
  }
}

}  // namespace
}  // namespace millrace
