// Grouped-query attention over the paged cache: decode, prefill and chunked prefill in one kernel.
//
// The arithmetic is docs/numerics.md's "Attention"; reference_attention.h is its plain form. The
// work is cut into items: a tile of query rows of one kv head, over an aligned range of the 16
// leaves. An item over all leaves writes its output rows; a narrower one leaves the roots of its
// subtree in the workspace, and a merge finishes the same tree. How the work is cut never changes a
// bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/kv_layout.h"
#include "tensor/dtype.h"

namespace millrace {

// Most query rows (tokens x heads) of an item: as many as share each loaded vector of keys.
inline constexpr int kAttentionRows = 12;
// Tiles whose scores an item computes together.
inline constexpr int kAttentionTiles = 4;
// Nodes of the merge tree that are live at once: a leaf, and at most one subtree for each level.
inline constexpr int kAttentionNodes = 5;

// One sequence's queries, of a step or the last ones of a step. Query i stands at position
// num_computed + i, sees positions 0 .. num_computed + i, and is row query_start + i of q and out.
struct AttentionSequence {
  int64_t query_start = 0;
  int32_t query_len = 0;
  int64_t num_computed = 0;
  const int32_t* block_table = nullptr;  // blocks of positions 0 .. num_computed + query_len - 1
};

struct AttentionArgs {
  const float* q = nullptr;  // [rows][q_stride], heads side by side, rounded to dtype
  int64_t q_stride = 0;
  float* out = nullptr;  // [rows][out_stride]
  int64_t out_stride = 0;
  int num_heads = 0;  // a multiple of cache.layout.num_kv_heads; head h reads kv head
                      // h / (num_heads / num_kv_heads)
  float scale = 0;
  DType dtype = DType::kF32;  // of the result: f32, f16 or bf16
  KvLayerView cache;
  const AttentionSequence* sequences = nullptr;
  float* workspace = nullptr;  // of the plan's size, 64-byte aligned; null if the plan needs none
};

// Queries [token_begin, token_begin + num_tokens) of a sequence (counted within its queries), heads
// [head_begin, head_begin + num_heads) (all of one kv head), leaves [leaf_begin, leaf_end) (a power
// of two of them, aligned). num_tokens * num_heads <= kAttentionRows.
struct AttentionItem {
  int32_t sequence = 0;
  int32_t token_begin = 0;
  int32_t num_tokens = 0;
  int32_t head_begin = 0;
  int32_t num_heads = 0;
  int32_t leaf_begin = 0;
  int32_t leaf_end = 16;
  // Where the roots go, in floats from the workspace's start: attention_root_floats(head_dim) for
  // each row, rows token-major. Unused (-1) for an item over all leaves.
  int64_t workspace_offset = -1;
};

// Finishes rows whose leaves were split among `num_parts` items (2, 4, 8 or 16) of equal ranges.
// Part i's roots lie at workspace_offset + i * num_tokens * num_heads *
// attention_root_floats(head_dim).
struct AttentionMerge {
  int32_t sequence = 0;
  int32_t token_begin = 0;
  int32_t num_tokens = 0;
  int32_t head_begin = 0;
  int32_t num_heads = 0;
  int32_t num_parts = 0;
  int64_t workspace_offset = 0;
};

// Floats of one root: acc[head_dim], m, l, rounded up to 16.
[[gnu::always_inline]] inline constexpr int64_t attention_root_floats(int64_t head_dim) {
  return (head_dim + 2 + 15) / 16 * 16;
}

// Bytes of scratch memory (64-byte aligned, one per thread) that run_item and merge need.
int64_t attention_scratch_bytes(int64_t head_dim);

struct AttentionKernels {
  const char* name;  // the build that it is: portable, avx2 or avx512
  void (*run_item)(const AttentionArgs& args, const AttentionItem& item, std::byte* scratch);
  void (*merge)(const AttentionArgs& args, const AttentionMerge& merge, std::byte* scratch);
};

// The kernels for `isa` (avx512vnni uses the avx512 build).
const AttentionKernels& attention_kernels(Isa isa);

}  // namespace millrace
