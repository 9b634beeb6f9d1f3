// How a model's cache lies in the paged pool: one of the two layouts.
#pragma once

#include <optional>

#include "tensor/kv_layout.h"
#include "tensor/mla_layout.h"

namespace millrace {

struct CacheLayout {
  KvLayout gqa;                  // used without `mla`
  std::optional<MlaLayout> mla;  // multi-head latent attention

  int64_t block_bytes() const { return mla ? mla->block_bytes : gqa.block_bytes(); }
  int block_size() const { return mla ? mla->block_size : gqa.block_size; }
};

}  // namespace millrace
