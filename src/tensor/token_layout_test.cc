#include "tensor/token_layout.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(TokenLayout, ShardsOfPaddedTokens) {
  // 3500 tokens on 16 ranks pad to 3504, 219 a rank.
  for (int64_t rank = 0; rank < 16; ++rank) {
    const TokenLayout shard = TokenLayout::sharded(3500, 16, rank);
    EXPECT_EQ(shard.padded, 3504);
    EXPECT_EQ(shard.rows(), 219);
    EXPECT_EQ(shard.begin, rank * 219);
  }
  EXPECT_EQ(TokenLayout::sharded(3, 8, 7).rows(), 1);
  EXPECT_EQ(TokenLayout::sharded(3, 8, 7).begin, 7);
}

TEST(TokenLayout, EqualShapesAreNotEqualLayouts) {
  const TokenLayout whole = TokenLayout::replicated(219);
  const TokenLayout shard = TokenLayout::sharded(3500, 16, 0);
  EXPECT_EQ(whole.rows(), shard.rows());
  EXPECT_NE(whole, shard);
  EXPECT_EQ(describe(whole), "replicated, 219 tokens");
  EXPECT_EQ(describe(shard), "sharded, tokens 0 to 219 of 3500 (padded to 3504)");
}

TEST(TokenLayout, RoundsOfRows) {
  const TokenLayout round = TokenLayout::sharded(3500, 16, 1).rows_between(19, 119);
  EXPECT_EQ(round.begin, 238);
  EXPECT_EQ(round.rows(), 100);
  EXPECT_NE(round, TokenLayout::sharded(3500, 16, 1));
}

}  // namespace
}  // namespace millrace
