#include "attention/mla_plan.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {
namespace {

// Items for each thread that splitting aims at: parts are nearly equal, and each has its own merge.
constexpr int64_t kItemsPerThread = 2;
// Splitting over leaves stops where a part would have fewer tiles of 16 entries than this.
constexpr int64_t kLeastTilesPerPart = 2;
// Absorbed queries and latent outputs of a round.
constexpr int64_t kRoundBytes = int64_t{64} << 20;
constexpr int64_t kLeastRoundTokens = 16;
// Positions of a part of a token's history, at least.
constexpr int64_t kLeastPositionsPerPart = 1024;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Positions that a query attends to.
int64_t entries_of(const MlaShape& shape, const AttentionSequence& sequence, int64_t token) {
  const int64_t visible = sequence.num_computed + token + 1;
  return shape.topk > 0 ? std::min<int64_t>(visible, shape.topk) : visible;
}

// One token's items: groups of heads, and ranges of leaves where there are too few items.
struct TokenCut {
  int64_t parts = 1;
  int64_t heads_per_item = 0;
};

void add_token(const MlaPlanInput& input, int32_t sequence, int32_t token, const TokenCut& cut,
               MlaPlan& plan) {
  const MlaShape& shape = input.shape;
  for (int64_t head = 0; head < shape.num_heads; head += cut.heads_per_item) {
    MlaItem item;
    item.sequence = sequence;
    item.token = token;
    item.head_begin = static_cast<int32_t>(head);
    item.num_heads =
        static_cast<int32_t>(std::min<int64_t>(cut.heads_per_item, shape.num_heads - head));
    if (cut.parts == 1) {
      plan.items.push_back(item);
      continue;
    }
    int64_t offset = plan.workspace_bytes / int64_t{sizeof(float)};
    plan.merges.push_back({sequence, token, item.head_begin, item.num_heads,
                           static_cast<int32_t>(cut.parts), offset});
    const int64_t root = divide_up(item.num_heads, kMlaLanes) * mla_root_floats(shape.latent);
    for (int64_t part = 0; part < cut.parts; ++part, offset += root) {
      item.leaf_begin = static_cast<int32_t>(16 / cut.parts * part);
      item.leaf_end = static_cast<int32_t>(16 / cut.parts * (part + 1));
      item.workspace_offset = offset;
      plan.items.push_back(item);
    }
    plan.workspace_bytes = offset * int64_t{sizeof(float)};
  }
}

// Packing of the queries of an item's scored tokens: at once, or, to share it out, a few heads
// each.
void add_index_packs(const MlaShape& shape, const AttentionSequence& sequence,
                     const IndexItem& item, bool split, IndexPlan& plan) {
  const int64_t end = item.token_begin + item.num_tokens;
  const int64_t begin = std::max<int64_t>(item.token_begin, shape.topk - sequence.num_computed);
  if (begin >= end) return;
  IndexPack pack{.row_begin = sequence.query_start + begin,
                 .num_rows = static_cast<int32_t>(end - begin)};
  const int32_t heads = split ? kIndexHeadPad : shape.index_heads;
  for (; pack.head_begin < shape.index_heads; pack.head_begin += heads) {
    pack.head_end = std::min(pack.head_begin + heads, shape.index_heads);
    plan.packs.push_back(pack);
  }
}

// The item itself, or `parts` items over ranges of its positions and their merge.
void add_index_items(const MlaShape& shape, IndexItem item, int64_t parts, IndexPlan& plan) {
  if (parts == 1) {
    plan.items.push_back(item);
    return;
  }
  plan.merges.push_back(
      {item.sequence, item.token_begin, static_cast<int32_t>(parts), plan.workspace_bytes});
  const int64_t end = item.position_end;
  const int64_t groups = divide_up(end, 16);
  for (int64_t part = 0; part < parts; ++part) {
    item.position_begin = groups * part / parts * 16;
    item.position_end = std::min(groups * (part + 1) / parts * 16, end);
    item.workspace_offset = plan.workspace_bytes;
    plan.workspace_bytes += index_candidates_bytes(shape.topk);
    plan.items.push_back(item);
  }
}

// Into how many ranges of leaves a token is split, if `wanted` items of it are wanted.
int64_t parts_of(int64_t entries, int64_t wanted) {
  const int64_t tiles = divide_up(entries, 16);
  int64_t parts = 1;
  while (parts < 16 && parts < wanted && tiles / (2 * parts) >= kLeastTilesPerPart) parts *= 2;
  return parts;
}

}  // namespace

void plan_mla_attention(const MlaPlanInput& input, MlaPlan& plan) {
  const MlaShape& shape = input.shape;
  MR_CHECK(shape.num_heads > 0 && input.num_threads > 0);
  plan.rounds.clear();
  plan.items.clear();
  plan.merges.clear();
  plan.workspace_bytes = 0;
  const int64_t groups = divide_up(shape.num_heads, kMlaLanes);
  const int64_t items_per_token = divide_up(groups, kMlaMostGroups);
  TokenCut cut;
  cut.heads_per_item = divide_up(groups, items_per_token) * kMlaLanes;
  plan.scratch_bytes =
      mla_scratch_bytes(shape.latent, shape.rope, static_cast<int>(cut.heads_per_item));
  int64_t num_tokens = 0;
  for (const AttentionSequence& sequence : input.sequences) num_tokens += sequence.query_len;
  const int64_t token_bytes =
      int64_t{shape.num_heads} * (2 * shape.latent + shape.rope) * int64_t{sizeof(float)};
  const int64_t most_tokens = std::max(kLeastRoundTokens, kRoundBytes / token_bytes);
  const int64_t num_rounds = std::max<int64_t>(1, divide_up(num_tokens, most_tokens));
  const int64_t wanted_items = input.num_threads == 1 ? 1 : input.num_threads * kItemsPerThread;

  size_t sequence = 0;
  int32_t token = 0;
  for (int64_t r = 0; r < num_rounds; ++r) {
    MlaRound round;
    round.token_begin = num_tokens * r / num_rounds;
    round.token_end = num_tokens * (r + 1) / num_rounds;
    round.item_begin = static_cast<int64_t>(plan.items.size());
    round.merge_begin = static_cast<int64_t>(plan.merges.size());
    // A round's workspace is free for the next.
    const int64_t workspace_before = plan.workspace_bytes;
    plan.workspace_bytes = 0;
    const int64_t tokens = round.token_end - round.token_begin;
    for (int64_t t = 0; t < tokens; ++t, ++token) {
      while (token == input.sequences[sequence].query_len) {
        ++sequence;
        token = 0;
      }
      const AttentionSequence& at = input.sequences[sequence];
      const int64_t entries = entries_of(shape, at, token);
      cut.parts = parts_of(entries, divide_up(wanted_items, tokens * items_per_token));
      add_token(input, static_cast<int32_t>(sequence), token, cut, plan);
      round.multiply_adds +=
          static_cast<double>(entries) * shape.num_heads * (2 * shape.latent + shape.rope);
      round.rows_read += entries;
    }
    round.item_end = static_cast<int64_t>(plan.items.size());
    round.merge_end = static_cast<int64_t>(plan.merges.size());
    plan.workspace_bytes = std::max(plan.workspace_bytes, workspace_before);
    const auto cost = [&](const MlaItem& item) {
      return entries_of(shape, input.sequences[static_cast<size_t>(item.sequence)], item.token) *
             (item.leaf_end - item.leaf_begin) * item.num_heads;
    };
    std::stable_sort(plan.items.begin() + round.item_begin, plan.items.end(),
                     [&](const MlaItem& a, const MlaItem& b) { return cost(a) > cost(b); });
    plan.rounds.push_back(round);
  }
}

void plan_indexer(const MlaPlanInput& input, IndexPlan& plan) {
  const MlaShape& shape = input.shape;
  MR_CHECK(shape.topk > 0 && input.num_threads > 0);
  plan.packs.clear();
  plan.items.clear();
  plan.merges.clear();
  plan.workspace_bytes = 0;
  plan.multiply_adds = 0;
  plan.keys_read = 0;
  int64_t longest = 0;
  int64_t whole_items = 0;
  int64_t num_tokens = 0;
  for (const AttentionSequence& sequence : input.sequences) {
    longest = std::max(longest, sequence.num_computed + sequence.query_len);
    num_tokens += sequence.query_len;
    whole_items += divide_up(sequence.query_len, kIndexTokens);
  }
  plan.selection_stride = divide_up(std::min<int64_t>(shape.topk, longest), 16) * 16;
  // One token alone: a part for each thread, because its only merge is one thread's work and takes
  // longer the more candidates the parts leave.
  const bool alone = num_tokens == 1 || input.num_threads == 1;
  const int64_t wanted_items = input.num_threads * (alone ? 1 : kItemsPerThread);
  const bool split = whole_items < wanted_items && !shape.recent_keys;
  const int64_t wanted_parts = divide_up(wanted_items, std::max<int64_t>(1, num_tokens));
  for (size_t i = 0; i < input.sequences.size(); ++i) {
    const AttentionSequence& sequence = input.sequences[i];
    for (int32_t token = 0; token < sequence.query_len;) {
      IndexItem item;
      item.sequence = static_cast<int32_t>(i);
      item.token_begin = token;
      item.num_tokens = split ? 1 : std::min<int32_t>(kIndexTokens, sequence.query_len - token);
      const int64_t visible = sequence.num_computed + token + item.num_tokens;
      token += item.num_tokens;
      item.position_end = visible;
      const bool scored = visible > shape.topk;
      if (scored) {
        plan.multiply_adds +=
            static_cast<double>(visible) * item.num_tokens * shape.index_heads * shape.index_dim;
      }
      if (!shape.recent_keys) add_index_packs(shape, sequence, item, split, plan);
      int64_t parts = 1;
      if (split && scored) {
        parts = std::min(wanted_parts, std::max<int64_t>(1, visible / kLeastPositionsPerPart));
      }
      add_index_items(shape, item, parts, plan);
    }
    if (sequence.num_computed + sequence.query_len > shape.topk) {
      plan.keys_read += sequence.num_computed + sequence.query_len;
    }
  }
  // Where every position is selected, nothing is scored.
  plan.scratch_bytes = longest <= shape.topk ? 0 : indexer_scratch_bytes(shape.topk);
  std::stable_sort(plan.items.begin(), plan.items.end(), [](const auto& a, const auto& b) {
    return (a.position_end - a.position_begin) * a.num_tokens >
           (b.position_end - b.position_begin) * b.num_tokens;
  });
}

}  // namespace millrace
