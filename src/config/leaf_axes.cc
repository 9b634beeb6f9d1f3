#include "config/leaf_axes.h"

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

LeafCuts cut_axis(int64_t size, int64_t unit) {
  LeafCuts cuts = LeafCuts::of((size + unit - 1) / unit, unit);
  for (int64_t& cut : cuts.cut) cut = std::min(cut, size);
  return cuts;
}

}  // namespace

LeafCuts resolve_head_cuts(int64_t num_heads, int64_t head_dim) {
  const int64_t unit = std::lcm(head_dim, int64_t{kLeafGranularity});
  return cut_axis(num_heads * head_dim, unit);
}

LeafCuts resolve_ffn_cuts(int64_t columns) { return cut_axis(columns, kLeafGranularity); }

LeafAxes resolve_leaf_axes(const ModelConfig& config) {
  return {.heads = resolve_head_cuts(config.num_heads, config.o_size() / config.num_heads),
          .ffn = resolve_ffn_cuts(config.intermediate_size)};
}

}  // namespace millrace
