// The block table of one sequence: the pool blocks that hold its positions, in order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcache/block_pool.h"

namespace millrace {

// Owns one reference to each of its blocks and gives them back when it goes. The pool must outlive
// the table. Position p lives in block blocks()[p / block_size], at row p % block_size.
class BlockTable {
 public:
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;
  ~BlockTable() { clear(); }

  std::span<const int32_t> blocks() const { return blocks_; }

  // Makes room for `num_tokens` tokens in all. False, and nothing changed, if the pool has too few
  // free blocks.
  bool grow_to(int64_t num_tokens);

  // Gives all blocks back.
  void clear();

 private:
  BlockPool* pool_;
  std::vector<int32_t> blocks_;
};

}  // namespace millrace
