#include "kernels/mla_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "tensor/mla_layout.h"

namespace millrace {
namespace {

// Of a pool: [begin, end) in bytes from its start.
struct Bytes {
  int64_t begin;
  int64_t end;
  std::string what;
};

// All that the views of a pool's layers name, block by block.
std::vector<Bytes> all_bytes(const MlaLayout& layout, std::byte* pool, int64_t num_blocks) {
  std::vector<Bytes> all;
  for (int64_t layer = 0; layer < static_cast<int64_t>(layout.layers.size()); ++layer) {
    const MlaLayerView view = mla_layer_view(layout, layer, pool, num_blocks);
    for (int64_t block = 0; block < num_blocks; ++block) {
      const auto add = [&](const void* at, int64_t bytes, const char* part) {
        const int64_t begin = static_cast<const std::byte*>(at) - pool;
        all.push_back({begin, begin + bytes,
                       std::string(part) + " of block " + std::to_string(block) + " in layer " +
                           std::to_string(layer)});
      };
      add(view.row(block, 0), layout.block_size * view.row_bytes(), "rows");
      if (view.row_scales != nullptr) {
        add(view.scales_of_row(block, 0), layout.block_size * int64_t{8}, "row scales");
      }
      if (view.index_keys == nullptr) continue;
      add(view.index_group(block, 0),
          int64_t{layout.block_size} * layout.index_dim * size_of(layout.index_dtype),
          "index keys");
      if (view.index_scales != nullptr) {
        add(view.scales_of_index_group(block, 0), layout.block_size * int64_t{4}, "index scales");
      }
    }
  }
  return all;
}

TEST(MlaCache, PartsOfAPoolAreApart) {
  constexpr int64_t kBlocks = 5;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    for (const DType index_dtype : {DType::kI8, DType::kF32, DType::kBF16}) {
      const MlaLayout layout = MlaLayout::make({.dtype = dtype,
                                                .index_dtype = index_dtype,
                                                .block_size = 48,
                                                .latent = 37,
                                                .rope = 6,
                                                .index_dim = 20},
                                               {1, 0, 1, 1});
      auto memory = Buffer::allocate(static_cast<size_t>(layout.block_bytes * kBlocks));
      ASSERT_TRUE(memory);
      std::byte* pool = memory->data();
      std::vector<Bytes> all = all_bytes(layout, pool, kBlocks);
      const size_t parts =
          4 * (dtype == DType::kI8 ? 2 : 1) + 3 * (index_dtype == DType::kI8 ? 2 : 1);
      EXPECT_EQ(all.size(), parts * kBlocks);
      std::ranges::sort(all, {}, &Bytes::begin);
      EXPECT_EQ(all.front().begin, 0);
      EXPECT_LE(all.back().end, layout.block_bytes * kBlocks);
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].begin % 64, 0) << all[i].what;
        if (i > 0) {
          EXPECT_LE(all[i - 1].end, all[i].begin) << all[i - 1].what << ", " << all[i].what;
        }
        // Nothing but the rounding up lies between.
        const int64_t next = i + 1 < all.size() ? all[i + 1].begin : layout.block_bytes * kBlocks;
        EXPECT_LT(next - all[i].end, 64) << all[i].what;
      }
      EXPECT_EQ(mla_layer_view(layout, 1, pool, kBlocks).index_keys, nullptr);
    }
  }
}

// Blocks that follow each other have their keys side by side, and no other layer's between.
TEST(MlaCache, IndexKeysOfALayerAreSideBySide) {
  const MlaLayout layout =
      MlaLayout::make({.latent = 512, .rope = 64, .index_dim = 128}, {1, 1, 1});
  auto memory = Buffer::allocate(static_cast<size_t>(layout.block_bytes * 4));
  ASSERT_TRUE(memory);
  const MlaLayerView view = mla_layer_view(layout, 2, memory->data(), 4);
  EXPECT_EQ(view.index_group(3, 0) - view.index_group(2, 0), 16 * (128 + 4));
  EXPECT_EQ(reinterpret_cast<std::byte*>(view.scales_of_index_group(2, 0)),
            view.index_group(2, 0) + 16 * 128);
}

TEST(MlaCache, WithoutMemoryThereAreNoPointers) {
  const MlaLayout layout = MlaLayout::make({.latent = 8, .rope = 8, .index_dim = 8}, {1});
  const MlaLayerView view = mla_layer_view(layout, 0, nullptr, 0);
  EXPECT_EQ(view.rows, nullptr);
  EXPECT_EQ(view.index_keys, nullptr);
  EXPECT_EQ(view.block_size, 16);
}

// Layers without an indexer cost nothing for one.
TEST(MlaCache, NoIndexerNoBytes) {
  const MlaLayout layout = MlaLayout::make({.latent = 512, .rope = 64}, {0, 0});
  EXPECT_EQ(layout.block_bytes, 2 * 16 * 576 * 2);
  EXPECT_EQ(layout.index_bytes, 0);
  EXPECT_EQ(layout.index_scales, -1);
}

}  // namespace
}  // namespace millrace
