// Where keys and values of grouped-query attention lie in the paged cache.
//
// The pool is an array of blocks, and a block holds its positions' keys and values of all layers,
// layer after layer: memory becomes resident block by block, as sequences grow. A layer's part:
//   keys    [kv_head][block_size / 16][head_dim][16]: 16 positions in lanes, so that a score kernel
//           loads one vector per element of the head
//   values  [kv_head][block_size][head_dim]
//   scales  of keys, then of values, fp32 [kv_head][block_size], only with int8 codes: one per row
//           (position and kv head)
// Each of these is rounded up to 64 bytes.
#pragma once

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
  int num_layers = 1;

  [[gnu::always_inline]] bool has_scales() const { return dtype == DType::kI8; }
  [[gnu::always_inline]] int64_t element_size() const {
    return dtype == DType::kF32 ? 4 : dtype == DType::kI8 ? 1 : 2;
  }
  // Bytes of one layer's keys in a block, and as many of values.
  int64_t layer_block_rows_bytes() const {
    return round_up(int64_t{num_kv_heads} * block_size * head_dim * element_size());
  }
  // Bytes of one layer's scales of keys in a block, and as many of values; 0 without scales.
  int64_t layer_block_scales_bytes() const {
    return has_scales() ? round_up(int64_t{num_kv_heads} * block_size * int64_t{sizeof(float)}) : 0;
  }
  // Bytes of a block: all layers.
  int64_t block_bytes() const {
    return num_layers * 2 * (layer_block_rows_bytes() + layer_block_scales_bytes());
  }
  // From a block to the next, in elements and in scales.
  int64_t block_stride() const { return block_bytes() / element_size(); }
  int64_t block_scale_stride() const { return block_bytes() / int64_t{sizeof(float)}; }

  // Element index of the first key of the 16 positions from `offset` (a multiple of 16, within the
  // block) of a head: 16 x head_dim keys follow, element-major.
  [[gnu::always_inline]] int64_t k_group(int64_t block, int kv_head, int offset) const {
    return block * block_stride() + (int64_t{kv_head} * block_size + offset) * head_dim;
  }
  // Element index of element d of the key at position `offset` of a block.
  [[gnu::always_inline]] int64_t k_element(int64_t block, int kv_head, int offset, int d) const {
    return k_group(block, kv_head, offset / kKvGroup * kKvGroup) + int64_t{d} * kKvGroup +
           offset % kKvGroup;
  }
  // Element index of the value row at position `offset` of a block: head_dim values follow.
  [[gnu::always_inline]] int64_t v_row(int64_t block, int kv_head, int offset) const {
    return block * block_stride() + (int64_t{kv_head} * block_size + offset) * head_dim;
  }
  // Index of the scale of a row, of keys or values.
  [[gnu::always_inline]] int64_t scale(int64_t block, int kv_head, int offset) const {
    return block * block_scale_stride() + int64_t{kv_head} * block_size + offset;
  }

 private:
  static constexpr int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }
};

}  // namespace millrace
