// Absorbed multi-head latent attention over the paged cache, dense or over selected positions:
// decode, prefill and chunked prefill in one kernel (docs/numerics.md, "Attention").
//
// All heads share a cached row (latent, then rope key); W_UK has been absorbed into the query, and
// W_UV comes after. 16 heads are the lanes of a vector; a tile of 16 entries of a leaf's list is
// gathered and brought into the form of the arithmetic once (expanded to fp32, or arranged in pairs
// for bf16 dot products), and serves all heads of the item.
//
// The work is cut into items: one query token, some groups of 16 heads, an aligned range of the 16
// leaves. An item over all leaves writes its output rows; a narrower one leaves the roots of its
// subtree in the workspace, and a merge finishes the same tree. The cut never changes a bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_gqa.h"
#include "kernels/isa.h"
#include "kernels/mla_cache.h"

namespace millrace {

inline constexpr int kMlaLanes = 16;  // heads of a group
// Most groups of heads of an item.
inline constexpr int kMlaMostGroups = 4;

// The positions that each token attends to. Token t's are positions[t * stride ...], leaf after
// leaf (leaf of p: (p / 16) % 16), ascending within a leaf; those of leaf j are
// [leaf_begin[17 * t + j], leaf_begin[17 * t + j + 1]), counted from its first.
struct LeafSelection {
  const int32_t* positions = nullptr;
  int64_t stride = 0;
  const int32_t* leaf_begin = nullptr;  // [tokens][17]
};

struct MlaArgs {
  // [tokens][q_stride]: heads side by side, each its absorbed query (latent elements), then its
  // rope part.
  const float* q = nullptr;
  int64_t q_stride = 0;
  float* out = nullptr;  // [tokens][out_stride]: heads side by side, latent elements; not rounded
  int64_t out_stride = 0;
  int num_heads = 0;
  float scale = 0;
  MlaLayerView cache;
  const AttentionSequence* sequences = nullptr;
  // Null positions: dense, every visible position.
  LeafSelection selection;
  float* workspace = nullptr;  // 64-byte aligned; null if no item is split over leaves
};

// Query `token` of a sequence (counted within its queries), heads [head_begin, head_begin +
// num_heads): head_begin is a multiple of 16, at most 16 * kMlaMostGroups heads; leaves
// [leaf_begin, leaf_end): a power of two of them, aligned.
struct MlaItem {
  int32_t sequence = 0;
  int32_t token = 0;
  int32_t head_begin = 0;
  int32_t num_heads = 0;
  int32_t leaf_begin = 0;
  int32_t leaf_end = 16;
  // Where the roots go, in floats from the workspace's start: mla_root_floats(latent) for each
  // group of 16 heads. Unused (-1) for an item over all leaves.
  int64_t workspace_offset = -1;
};

// Finishes heads whose leaves were split among `num_parts` items (2, 4, 8 or 16) of equal ranges.
// Part i's roots lie at workspace_offset + i * groups * mla_root_floats(latent).
struct MlaMerge {
  int32_t sequence = 0;
  int32_t token = 0;
  int32_t head_begin = 0;
  int32_t num_heads = 0;
  int32_t num_parts = 0;
  int64_t workspace_offset = 0;
};

// Floats of one group's root: acc [latent][16], m [16], l [16].
[[gnu::always_inline]] inline constexpr int64_t mla_root_floats(int64_t latent) {
  return (latent + 2) * kMlaLanes;
}

// Bytes of scratch memory (64-byte aligned, one per thread) that run_item and merge need for items
// of `num_heads` heads.
int64_t mla_scratch_bytes(int64_t latent, int64_t rope, int num_heads);

struct MlaKernels {
  const char* name;  // the build that it is: portable, avx2, avx512 or avx512bf16
  void (*run_item)(const MlaArgs& args, const MlaItem& item, std::byte* scratch);
  void (*merge)(const MlaArgs& args, const MlaMerge& merge, std::byte* scratch);
  // Writes tokens [token_begin, token_end).
  void (*write)(const MlaWriteArgs& args, int64_t token_begin, int64_t token_end);
};

// The kernels for `isa` (avx512vnni uses the avx512 build).
const MlaKernels& mla_kernels(Isa isa);
// The kernels for a cache of this type and these row widths; run_item takes no other. In the
// numeric class bf16 (`bf16_class`; needs has_bf16_class, kernels/isa.h) bf16 rows of an even
// number of elements are multiplied by bf16 dot products, with queries and attention weights
// rounded to bf16: reference_mla.h. In all other cases they are those for `isa`.
const MlaKernels& mla_kernels(Isa isa, bool bf16_class, const MlaLayerView& cache);

}  // namespace millrace
