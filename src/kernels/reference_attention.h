// Scalar reference of attention (docs/numerics.md, "Attention"): plain loops, one row at a time.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "kernels/attention_gqa.h"

namespace millrace {

// A node of the tree: running maximum, sum of weights, weighted sum of values. Empty: l = 0 (a leaf
// with entries has l >= 1, or NaN).
struct AttentionState {
  float m = 0;
  float l = 0;
  std::vector<float> acc;  // [head_dim]

  bool empty() const { return l == 0; }
};

// The state of one leaf for the query row `q` (head_dim elements, at position `position` of
// `sequence`) of a kv head. Entries are the leaf's positions <= position, ascending; a tile is 16
// of them. Scores: (chain over d) * scale, for int8 ((chain * k scale) * scale). Sums of weights:
// l[slot] = fma(l[slot], c, p), with p = 0 for a slot without entry. int8 values: fma(p * v scale,
// v, acc).
AttentionState reference_attention_leaf(const AttentionArgs& args,
                                        const AttentionSequence& sequence, int kv_head,
                                        const float* q, int64_t position, int leaf);

// The parent of two nodes; an empty one is skipped.
AttentionState reference_attention_merge(const AttentionState& left, const AttentionState& right);

// The root of 16 leaves by the tree.
AttentionState reference_attention_tree(std::span<const AttentionState> leaves);

// Computes all rows of the first `num_sequences` sequences into args.out.
void reference_attention(const AttentionArgs& args, int num_sequences);

}  // namespace millrace
