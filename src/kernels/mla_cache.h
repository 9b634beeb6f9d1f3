// One layer's part of the latent cache, and the writing of new tokens into it.
//
// Files of every instruction set include this: plain types and always-inline functions only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

struct MlaLayout;

// Where a layer's rows and index keys are: pointers to those of block 0, and the bytes from a
// block's to the next one's. Does not own its memory. Layouts: tensor/mla_layout.h.
struct MlaLayerView {
  DType dtype{};        // of rows: kF32, kF16, kBF16, kI8
  DType index_dtype{};  // of index keys: kI8, kF32, kBF16
  int block_size = 16;
  int latent = 0;
  int rope = 0;
  int index_dim = 0;         // a multiple of 4
  int64_t rows_stride = 0;   // bytes from a block to the next: of rows and their scales
  int64_t index_stride = 0;  // of index keys and their scales
  std::byte* rows = nullptr;
  std::byte* row_scales = nullptr;    // null unless int8 rows
  std::byte* index_keys = nullptr;    // null in layers without an indexer
  std::byte* index_scales = nullptr;  // null unless int8 index keys

  [[gnu::always_inline]] int64_t row_bytes() const {
    const int64_t size = dtype == DType::kF32 ? 4 : dtype == DType::kI8 ? 1 : 2;
    return (latent + rope) * size;
  }
  // The row of the position at `offset` of a block.
  [[gnu::always_inline]] std::byte* row(int64_t block, int offset) const {
    return rows + block * rows_stride + offset * row_bytes();
  }
  // Its two scales: latent, rope key.
  [[gnu::always_inline]] float* scales_of_row(int64_t block, int offset) const {
    return reinterpret_cast<float*>(row_scales + block * rows_stride) + 2 * offset;
  }
  // The index keys of the 16 positions from `offset` (a multiple of 16) of a block.
  [[gnu::always_inline]] std::byte* index_group(int64_t block, int offset) const {
    const int64_t size = index_dtype == DType::kF32 ? 4 : index_dtype == DType::kI8 ? 1 : 2;
    return index_keys + block * index_stride + int64_t{offset} * index_dim * size;
  }
  // Their scales, [16].
  [[gnu::always_inline]] float* scales_of_index_group(int64_t block, int offset) const {
    return reinterpret_cast<float*>(index_scales + block * index_stride) + offset;
  }
};

// The view of layer `layer` of a pool of `num_blocks` blocks at `memory` (64-byte aligned,
// block_bytes for each block); null memory gives null pointers, for prices.
MlaLayerView mla_layer_view(const MlaLayout& layout, int64_t layer, std::byte* memory,
                            int64_t num_blocks);

// Writes tokens' latents (after their norm) and rope keys (after RoPE). Token t goes to
// slot_mapping[t] = block * block_size + offset; a negative slot writes nothing. Elements are
// rounded to the cache's type. int8: the latent and the rope key each have a scale = amax / 127 and
// codes = nearest even of x / scale in [-127, 127], with the special cases of kv_write.h.
struct MlaWriteArgs {
  const float* latent = nullptr;  // [tokens][latent_stride]
  int64_t latent_stride = 0;
  const float* rope_key = nullptr;  // [tokens][rope_stride]
  int64_t rope_stride = 0;
  const int64_t* slot_mapping = nullptr;
  MlaLayerView cache;
};

// Writes tokens' index keys (after norm and RoPE). Same rounding rules; int8 codes are stored plus
// 128, unsigned.
struct IndexWriteArgs {
  const float* key = nullptr;  // [tokens][key_stride]
  int64_t key_stride = 0;
  const int64_t* slot_mapping = nullptr;
  MlaLayerView cache;
};

}  // namespace millrace
