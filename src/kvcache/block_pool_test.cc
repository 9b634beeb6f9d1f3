#include "kvcache/block_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

#include "kvcache/block_table.h"

namespace millrace {
namespace {

TEST(BlockPool, HandsOutEachBlockOnceAndThenNothing) {
  BlockPool pool(5, 16);
  std::set<int32_t> blocks;
  for (int i = 0; i < 5; ++i) blocks.insert(pool.allocate().value());
  EXPECT_EQ(blocks, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_FALSE(pool.allocate().has_value());
  pool.release(3);
  EXPECT_EQ(pool.allocate(), 3);
}

TEST(BlockPool, SharedBlockIsFreedByItsLastOwner) {
  BlockPool pool(2, 16);
  const int32_t block = pool.allocate().value();
  pool.add_reference(block);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.ref_count(block), 1);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPoolDeathTest, DoubleFreeIsCaught) {
  BlockPool pool(2, 16);
  const int32_t block = pool.allocate().value();
  pool.release(block);
  EXPECT_DEATH(pool.release(block), "released twice");
  EXPECT_DEATH(pool.add_reference(block), "free block");
  EXPECT_DEATH(pool.release(7), "block 7 of a pool of 2");
}

TEST(BlockTable, GrowsByWholeBlocksOrNotAtAll) {
  BlockPool pool(4, 16);
  BlockTable table(pool);
  EXPECT_TRUE(table.grow_to(0));
  EXPECT_EQ(table.blocks().size(), 0u);
  EXPECT_TRUE(table.grow_to(1));
  EXPECT_TRUE(table.grow_to(16));
  EXPECT_EQ(table.blocks().size(), 1u);
  EXPECT_TRUE(table.grow_to(17));
  EXPECT_EQ(table.blocks().size(), 2u);
  EXPECT_FALSE(table.grow_to(65));
  EXPECT_EQ(table.blocks().size(), 2u);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_TRUE(table.grow_to(5)) << "never shrinks";
  EXPECT_EQ(table.blocks().size(), 2u);
}

TEST(BlockTable, GivesItsBlocksBack) {
  BlockPool pool(4, 16);
  {
    BlockTable table(pool);
    EXPECT_TRUE(table.grow_to(64));
    EXPECT_EQ(pool.num_free(), 0);
  }
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(BlockTable, RandomTablesNeverShareABlock) {
  BlockPool pool(64, 8);
  std::mt19937 random(7);
  std::vector<std::unique_ptr<BlockTable>> tables(12);
  for (auto& table : tables) table = std::make_unique<BlockTable>(pool);
  for (int step = 0; step < 2000; ++step) {
    BlockTable& table = *tables[random() % tables.size()];
    if (random() % 3 == 0) {
      table.clear();
    } else {
      table.grow_to(static_cast<int64_t>(table.blocks().size()) * pool.block_size() +
                    static_cast<int64_t>(random() % 40));
    }
    std::set<int32_t> seen;
    size_t total = 0;
    for (const auto& each : tables) {
      seen.insert(each->blocks().begin(), each->blocks().end());
      total += each->blocks().size();
    }
    ASSERT_EQ(seen.size(), total);
    ASSERT_EQ(static_cast<int64_t>(total) + pool.num_free(), pool.num_blocks());
  }
}

}  // namespace
}  // namespace millrace
