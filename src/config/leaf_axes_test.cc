#include "config/leaf_axes.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(LeafAxes, HeadsStayWhole) {
  // SmolLM2: 9 heads of 64 in 16 leaves: some leaves are empty, no head is split.
  const LeafCuts cuts = resolve_head_cuts(9, 64);
  EXPECT_EQ(cuts.begin(0), 0);
  EXPECT_EQ(cuts.end(15), 9 * 64);
  int empty = 0;
  for (int j = 0; j < kNumLeaves; ++j) {
    EXPECT_EQ(cuts.begin(j), 9 * j / 16 * 64) << j;
    empty += cuts.empty(j);
  }
  EXPECT_EQ(empty, 7);
}

TEST(LeafAxes, SmallHeadsShareAUnit) {
  // Two heads of 16 make 32 elements: every cut is a multiple of 32.
  const LeafCuts cuts = resolve_head_cuts(4, 16);
  for (int j = 0; j <= kNumLeaves; ++j) EXPECT_EQ(cuts.cut[j] % 32, 0);
  // 80 and 32: units of two heads.
  const LeafCuts wide = resolve_head_cuts(32, 80);
  for (int j = 0; j <= kNumLeaves; ++j) EXPECT_EQ(wide.cut[j], 16 * j / 16 * 160);
}

TEST(LeafAxes, ShortLastUnit) {
  EXPECT_EQ(resolve_head_cuts(3, 16).size(), 48);
  const LeafCuts ffn = resolve_ffn_cuts(100);
  EXPECT_EQ(ffn.size(), 100);
  for (int j = 0; j < kNumLeaves; ++j) EXPECT_LE(ffn.begin(j), ffn.end(j));
}

TEST(LeafAxes, FfnColumns) {
  const LeafCuts cuts = resolve_ffn_cuts(1536);
  for (int j = 0; j <= kNumLeaves; ++j) EXPECT_EQ(cuts.cut[j], 96 * j);
}

}  // namespace
}  // namespace millrace
