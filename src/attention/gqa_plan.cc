#include "attention/gqa_plan.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {
namespace {

// Items for each thread that splitting aims at: enough that the last ones to finish differ little.
constexpr int kItemsPerThread = 4;
// Splitting stops where a part would have fewer tiles of 16 positions than this.
constexpr int64_t kLeastTilesPerPart = 8;

// Rows x positions: what an item costs, up to a factor.
int64_t cost_of(const AttentionSequence& sequence, const AttentionItem& item) {
  const int64_t last = sequence.num_computed + item.token_begin + item.num_tokens;
  return last * item.num_tokens * item.num_heads * (item.leaf_end - item.leaf_begin);
}

// How a kv head's query heads and a sequence's tokens are cut into tiles of rows.
struct RowTiles {
  int heads = 0;  // of a tile
  int tokens = 0;
};

RowTiles row_tiles(int group) {
  const int parts = (group + kAttentionRows - 1) / kAttentionRows;
  const int heads = (group + parts - 1) / parts;
  return {heads, kAttentionRows / heads};
}

void add_row_tiles(const GqaPlanInput& input, int sequence_index, GqaPlan& plan) {
  const AttentionSequence& sequence = input.sequences[static_cast<size_t>(sequence_index)];
  const int group = input.num_heads / input.num_kv_heads;
  const RowTiles tiles = row_tiles(group);
  for (int token = 0; token < sequence.query_len; token += tiles.tokens) {
    for (int kv_head = 0; kv_head < input.num_kv_heads; ++kv_head) {
      for (int head = 0; head < group; head += tiles.heads) {
        AttentionItem item;
        item.sequence = sequence_index;
        item.token_begin = token;
        item.num_tokens = std::min(tiles.tokens, sequence.query_len - token);
        item.head_begin = kv_head * group + head;
        item.num_heads = std::min(tiles.heads, group - head);
        plan.items.push_back(item);
      }
    }
  }
}

// Into how many ranges of leaves an item is split: 1, 2, 4, 8 or 16.
int parts_of(const AttentionSequence& sequence, const AttentionItem& item, int64_t target_cost) {
  const int64_t tiles =
      (sequence.num_computed + item.token_begin + item.num_tokens + kKvGroup - 1) / kKvGroup;
  int parts = 1;
  while (parts < 16 && cost_of(sequence, item) / parts > target_cost &&
         tiles / (2 * parts) >= kLeastTilesPerPart) {
    parts *= 2;
  }
  return parts;
}

// Splits the items that are too large for an even share among the threads.
void split_over_leaves(const GqaPlanInput& input, GqaPlan& plan) {
  int64_t total = 0;
  for (const AttentionItem& item : plan.items) {
    total += cost_of(input.sequences[static_cast<size_t>(item.sequence)], item);
  }
  const int64_t target = total / (int64_t{input.num_threads} * kItemsPerThread);
  int64_t workspace_floats = 0;
  const size_t whole = plan.items.size();
  for (size_t i = 0; i < whole; ++i) {
    const AttentionItem item = plan.items[i];
    const int parts = parts_of(input.sequences[static_cast<size_t>(item.sequence)], item, target);
    if (parts == 1) continue;
    plan.merges.push_back({item.sequence, item.token_begin, item.num_tokens, item.head_begin,
                           item.num_heads, parts, workspace_floats});
    const int leaves = 16 / parts;
    for (int part = 0; part < parts; ++part) {
      AttentionItem piece = item;
      piece.leaf_begin = part * leaves;
      piece.leaf_end = piece.leaf_begin + leaves;
      piece.workspace_offset = workspace_floats;
      workspace_floats += item.num_tokens * item.num_heads * attention_root_floats(input.head_dim);
      if (part == 0) {
        plan.items[i] = piece;
      } else {
        plan.items.push_back(piece);
      }
    }
  }
  plan.workspace_bytes = workspace_floats * int64_t{sizeof(float)};
}

}  // namespace

void plan_gqa_attention(const GqaPlanInput& input, GqaPlan& plan) {
  MR_CHECK(
      input.num_kv_heads > 0 && input.num_heads % input.num_kv_heads == 0 && input.num_threads > 0,
      "{} heads, {} kv heads, {} threads", input.num_heads, input.num_kv_heads, input.num_threads);
  plan.items.clear();
  plan.merges.clear();
  plan.workspace_bytes = 0;
  plan.scratch_bytes = attention_scratch_bytes(input.head_dim);
  plan.multiply_adds = 0;
  plan.positions_read = 0;
  for (size_t i = 0; i < input.sequences.size(); ++i) {
    const AttentionSequence& sequence = input.sequences[i];
    add_row_tiles(input, static_cast<int>(i), plan);
    const double queries = sequence.query_len;
    const double pairs =
        queries * static_cast<double>(sequence.num_computed) + queries * (queries + 1) / 2;
    plan.multiply_adds += 2.0 * input.head_dim * input.num_heads * pairs;
    if (sequence.query_len > 0) plan.positions_read += sequence.num_computed + sequence.query_len;
  }
  if (input.num_threads > 1) split_over_leaves(input, plan);
  std::sort(plan.items.begin(), plan.items.end(),
            [&](const AttentionItem& a, const AttentionItem& b) {
              const int64_t cost_a = cost_of(input.sequences[static_cast<size_t>(a.sequence)], a);
              const int64_t cost_b = cost_of(input.sequences[static_cast<size_t>(b.sequence)], b);
              if (cost_a != cost_b) return cost_a > cost_b;
              if (a.sequence != b.sequence) return a.sequence < b.sequence;
              if (a.token_begin != b.token_begin) return a.token_begin < b.token_begin;
              if (a.head_begin != b.head_begin) return a.head_begin < b.head_begin;
              return a.leaf_begin < b.leaf_begin;
            });
}

}  // namespace millrace
