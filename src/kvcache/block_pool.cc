#include "kvcache/block_pool.h"

#include <limits>

#include "base/check.h"

namespace millrace {

BlockPool::BlockPool(int64_t num_blocks, int64_t block_size) : block_size_(block_size) {
  MR_CHECK(num_blocks >= 0 && num_blocks <= std::numeric_limits<int32_t>::max(), "num_blocks {}",
           num_blocks);
  MR_CHECK(block_size >= 1, "block_size {}", block_size);
  ref_counts_.assign(num_blocks, 0);
  free_.reserve(num_blocks);
  for (int64_t block = num_blocks; block-- > 0;) free_.push_back(static_cast<int32_t>(block));
}

std::optional<int32_t> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t block = free_.back();
  free_.pop_back();
  MR_CHECK(ref_counts_[block] == 0, "block {} is on the free list with {} owners", block,
           ref_counts_[block]);
  ref_counts_[block] = 1;
  return block;
}

void BlockPool::add_reference(int32_t block) {
  MR_CHECK(ref_count(block) > 0, "reference to the free block {}", block);
  ++ref_counts_[block];
}

void BlockPool::release(int32_t block) {
  MR_CHECK(ref_count(block) > 0, "block {} is released twice", block);
  if (--ref_counts_[block] == 0) free_.push_back(block);
}

int32_t BlockPool::ref_count(int32_t block) const {
  MR_CHECK(block >= 0 && block < num_blocks(), "block {} of a pool of {}", block, num_blocks());
  return ref_counts_[block];
}

}  // namespace millrace
