// Where keys and values of grouped-query attention lie in the paged cache, per layer.
//
// Keys: [block][kv_head][block_size / 16][head_dim][16]: 16 positions in lanes, so that a score
// kernel loads one vector per element of the head. Values: [block][kv_head][block_size][head_dim].
// Types: f32, f16, bf16, or int8 codes with one fp32 scale per row (position and kv head), in
// [block][kv_head][block_size], for keys and for values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

inline constexpr int kKvGroup = 16;  // positions that share a vector of keys

// Always inline: files of every instruction set use it, and the linker keeps one out-of-line copy.
struct KvLayout {
  DType dtype = DType::kF16;  // kF32, kF16, kBF16 or kI8
  int block_size = 16;        // positions; a multiple of 16
  int num_kv_heads = 0;
  int head_dim = 0;

  [[gnu::always_inline]] bool has_scales() const { return dtype == DType::kI8; }
  [[gnu::always_inline]] int64_t element_size() const {
    return dtype == DType::kF32 ? 4 : dtype == DType::kI8 ? 1 : 2;
  }
  // Elements of one block of keys, and as many of values.
  [[gnu::always_inline]] int64_t block_elements() const {
    return int64_t{num_kv_heads} * block_size * head_dim;
  }
  // Scales of one block of keys, and as many of values; 0 without scales.
  [[gnu::always_inline]] int64_t block_scales() const {
    return has_scales() ? int64_t{num_kv_heads} * block_size : 0;
  }
  // Bytes of one block of one layer: keys, values and scales.
  [[gnu::always_inline]] int64_t block_bytes() const {
    return 2 * (block_elements() * element_size() + block_scales() * int64_t{sizeof(float)});
  }

  // Element index of the first key of the 16 positions from `offset` (a multiple of 16, within the
  // block) of a head: 16 x head_dim keys follow, element-major.
  [[gnu::always_inline]] int64_t k_group(int64_t block, int kv_head, int offset) const {
    return ((block * num_kv_heads + kv_head) * block_size + offset) * head_dim;
  }
  // Element index of element d of the key at position `offset` of a block.
  [[gnu::always_inline]] int64_t k_element(int64_t block, int kv_head, int offset, int d) const {
    return k_group(block, kv_head, offset / kKvGroup * kKvGroup) + int64_t{d} * kKvGroup +
           offset % kKvGroup;
  }
  // Element index of the value row at position `offset` of a block: head_dim values follow.
  [[gnu::always_inline]] int64_t v_row(int64_t block, int kv_head, int offset) const {
    return ((block * num_kv_heads + kv_head) * block_size + offset) * head_dim;
  }
  // Index of the scale of a row, of keys or values.
  [[gnu::always_inline]] int64_t scale(int64_t block, int kv_head, int offset) const {
    return (block * num_kv_heads + kv_head) * block_size + offset;
  }
};

// One layer's cache. Does not own its memory; every pointer is 64-byte aligned.
struct KvLayerView {
  KvLayout layout;
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  float* k_scale = nullptr;  // null without scales
  float* v_scale = nullptr;
};

// Bytes that one layer of `num_blocks` blocks takes: the four parts, each rounded up to 64 bytes.
int64_t kv_layer_bytes(const KvLayout& layout, int64_t num_blocks);

// The layer's view of kv_layer_bytes() bytes at `memory` (64-byte aligned). Null memory gives null
// pointers, for prices.
KvLayerView kv_layer_view(const KvLayout& layout, int64_t num_blocks, std::byte* memory);

}  // namespace millrace
