// Where the axes that ranks may share are cut into sixteen leaves (docs/numerics.md, "Leaves and
// shards").
#pragma once

#include "config/model_config.h"
#include "tensor/leaves.h"

namespace millrace {

// Activations are quantised in groups of 32, and every packed block divides 32: so a cut at a
// multiple of 32 never splits a block or a group.
inline constexpr int kLeafGranularity = 32;

// Cuts of `num_heads` heads of head_dim elements, in elements. The unit is the smallest run of
// whole heads that is a multiple of 32 elements; if it does not divide the heads, the last unit is
// short.
LeafCuts resolve_head_cuts(int64_t num_heads, int64_t head_dim);

// Cuts of an FFN's `columns` intermediate columns; the unit is 32 columns, the last may be short.
LeafCuts resolve_ffn_cuts(int64_t columns);

// The two axes of a dense model.
struct LeafAxes {
  LeafCuts heads;  // inputs of o_proj
  LeafCuts ffn;    // inputs of down_proj
};
LeafAxes resolve_leaf_axes(const ModelConfig& config);

}  // namespace millrace
