// Where a layer's keys and values of grouped-query attention are in memory; the order of the
// elements is that of tensor/kv_layout.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/kv_layout.h"

namespace millrace {

// One layer's cache: where its part of block 0 is. Does not own its memory; every pointer is
// 64-byte aligned.
struct KvLayerView {
  KvLayout layout;
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  float* k_scale = nullptr;  // null without scales
  float* v_scale = nullptr;
};

// The view of layer `layer` of a pool at `memory` (64-byte aligned, block_bytes() for each block).
// Null memory gives null pointers, for prices.
KvLayerView kv_layer_view(const KvLayout& layout, int64_t layer, std::byte* memory);

}  // namespace millrace
