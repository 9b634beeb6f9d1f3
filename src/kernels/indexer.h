// The indexer of DeepSeek Sparse Attention: scores of all visible keys, fused with the choice of
// the k best (docs/numerics.md, "Attention", Indexer; DeepSeek-V3.2, section 2.1).
//
//   f32, bf16 keys:  score = chain over heads h ascending: fma(w_h, relu((q_h . k) * D^-0.5), acc),
//                    q_h . k a chain over elements ascending
//   int8 keys:       acc = chain over heads: fma((w_h * D^-0.5) * sq_h, relu(float(idot_h)), acc);
//                    score = acc * sk; q quantised per token and head (sq_h = amax / 127), keys as
//                    cached
// with w_h the head's weight, which already has its H^-0.5. The k best by score, ties to the lower
// position; -0 = +0, NaN = -inf. If no more than k positions are visible, all of them.
//
// Queries are packed first, into the order of the loops, once for all items that read them. Scores
// never leave the cache: each item keeps the candidates of its range of positions. Items
// that see a token's whole history write its selection; narrower ones leave their candidates in the
// workspace, and a merge picks from them. The cut never changes the selection.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_gqa.h"
#include "kernels/isa.h"
#include "kernels/mla_cache.h"

namespace millrace {

// Most tokens of an item: they share each loaded key.
inline constexpr int kIndexTokens = 4;
// Packed queries hold a multiple of this many heads.
inline constexpr int kIndexHeadPad = 8;

struct IndexerArgs {
  const float* q = nullptr;  // [tokens][q_stride]: heads side by side, after RoPE
  int64_t q_stride = 0;
  const float* weights = nullptr;  // [tokens][weights_stride]: w_h of each head
  int64_t weights_stride = 0;
  int num_heads = 0;
  int topk = 0;
  MlaLayerView cache;
  // [tokens][index_query_bytes]: written by `pack`, read by run_item and score; 64-byte aligned.
  std::byte* queries = nullptr;
  const AttentionSequence* sequences = nullptr;
  // Out, as LeafSelection (attention_mla.h): [tokens][selection_stride] and [tokens][17].
  int32_t* positions = nullptr;
  int64_t selection_stride = 0;  // at least min(topk, longest history)
  int32_t* leaf_begin = nullptr;
  std::byte* workspace = nullptr;  // candidates of split tokens, 64-byte aligned
};

// Rows [row_begin, row_begin + num_rows) of q, heads [head_begin, head_end). Heads begin and end at
// multiples of kIndexHeadPad, or end with the last head.
struct IndexPack {
  int64_t row_begin = 0;
  int32_t num_rows = 0;
  int32_t head_begin = 0;
  int32_t head_end = 0;
};

// Tokens [token_begin, token_begin + num_tokens) of a sequence (counted within its queries),
// positions [position_begin, position_end), cut to what each token sees. position_begin is a
// multiple of 16. A part of a split token has num_tokens == 1 and a workspace_offset.
struct IndexItem {
  int32_t sequence = 0;
  int32_t token_begin = 0;
  int32_t num_tokens = 0;
  int64_t position_begin = 0;
  int64_t position_end = 0;
  int64_t workspace_offset = -1;  // bytes; -1: the item sees the tokens' whole history
};

// Picks a token's selection from the candidates of `num_parts` items, in ascending order of their
// positions; part i's candidates are at workspace_offset + i * index_candidates_bytes(topk).
struct IndexMerge {
  int32_t sequence = 0;
  int32_t token = 0;
  int32_t num_parts = 0;
  int64_t workspace_offset = 0;
};

// D^-0.5.
[[gnu::always_inline]] inline float index_score_scale(int index_dim) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(index_dim)));
}

// Most candidates that a part leaves: to cut away fewer costs more than to carry them along.
[[gnu::always_inline]] inline constexpr int64_t index_part_candidates(int64_t topk) {
  return topk + topk / 4;
}

// Bytes of one part's candidates.
[[gnu::always_inline]] inline constexpr int64_t index_candidates_bytes(int64_t topk) {
  return 64 + (index_part_candidates(topk) * 8 + 63) / 64 * 64;
}

// Bytes of one token's packed queries, for keys of this type.
int64_t index_query_bytes(int num_heads, int index_dim, DType index_dtype);

// Bytes of scratch memory (64-byte aligned, one per thread) that run_item and merge need.
int64_t indexer_scratch_bytes(int topk);

struct IndexerKernels {
  const char* name;  // the build that it is: portable, avx2, avx512 or avx512vnni
  // Uses no scratch memory. Must be done before an item that sees the rows begins.
  void (*pack)(const IndexerArgs& args, const IndexPack& pack, std::byte* scratch);
  void (*run_item)(const IndexerArgs& args, const IndexItem& item, std::byte* scratch);
  void (*merge)(const IndexerArgs& args, const IndexMerge& merge, std::byte* scratch);
  // Writes index keys of tokens [token_begin, token_end).
  void (*write)(const IndexWriteArgs& args, int64_t token_begin, int64_t token_end);
  // For tests and benchmarks, all rows packed: the scores of an item's positions that each token
  // sees, to scores[token * stride + position - position_begin].
  void (*score)(const IndexerArgs& args, const IndexItem& item, float* scores, int64_t stride);
};

const IndexerKernels& indexer_kernels(Isa isa);

}  // namespace millrace
