// The sixteen-leaf rule: how an axis that ranks may share is cut (docs/numerics.md, "Leaves and
// shards").
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

inline constexpr int kNumLeaves = 16;

// Cuts of an axis into 16 leaves, in elements of the axis: leaf j is [begin(j), begin(j + 1)).
// The axis is made of `units` units of `unit` elements each; leaf j has the units
// [units*j/16, units*(j+1)/16), so leaves may be empty.
struct LeafCuts {
  std::array<int64_t, kNumLeaves + 1> cut{};

  static LeafCuts of(int64_t units, int64_t unit) {
    LeafCuts cuts;
    for (int64_t j = 0; j <= kNumLeaves; ++j) cuts.cut[j] = units * j / kNumLeaves * unit;
    return cuts;
  }

  int64_t begin(int leaf) const { return cut[leaf]; }
  int64_t end(int leaf) const { return cut[leaf + 1]; }
  bool empty(int leaf) const { return begin(leaf) == end(leaf); }
  int64_t size() const { return cut[kNumLeaves]; }
};

}  // namespace millrace
