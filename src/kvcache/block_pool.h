// The pool of cache blocks: which of the fixed number of blocks are in use, and by how many owners.
//
// A block is room for `block_size` tokens in every layer's cache. The pool hands out numbers; the
// memory behind them belongs to the runner. Blocks carry reference counts, so that sequences can
// share the blocks of a common beginning.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace millrace {

class BlockPool {
 public:
  // num_blocks >= 0 and block_size >= 1 (checked: the caller has resolved them).
  BlockPool(int64_t num_blocks, int64_t block_size);

  int64_t num_blocks() const { return static_cast<int64_t>(ref_counts_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t block_size() const { return block_size_; }

  // Blocks that hold `num_tokens` tokens.
  int64_t blocks_for(int64_t num_tokens) const {
    return (num_tokens + block_size_ - 1) / block_size_;
  }

  // A free block with one reference, or nothing when all are in use.
  std::optional<int32_t> allocate();

  // Adds an owner to a block in use.
  void add_reference(int32_t block);

  // Drops one owner; the last one frees the block. Releasing a free block is an internal error.
  void release(int32_t block);

  int32_t ref_count(int32_t block) const;

 private:
  int64_t block_size_;
  std::vector<int32_t> ref_counts_;  // by block
  std::vector<int32_t> free_;        // used as a stack: the warmest block is handed out first
};

}  // namespace millrace
