#include "kvcache/block_table.h"

namespace millrace {

bool BlockTable::grow_to(int64_t num_tokens) {
  const int64_t missing = pool_->blocks_for(num_tokens) - static_cast<int64_t>(blocks_.size());
  if (missing > pool_->num_free()) return false;
  for (int64_t i = 0; i < missing; ++i) blocks_.push_back(*pool_->allocate());
  return true;
}

void BlockTable::clear() {
  // Last block first, so that the first is the next to be handed out again.
  while (!blocks_.empty()) {
    pool_->release(blocks_.back());
    blocks_.pop_back();
  }
}

}  // namespace millrace
