// Where latents, rope keys and indexer keys of multi-head latent attention lie in the paged cache.
//
// The pool is an array of blocks; a block holds its positions' rows of all layers, layer after
// layer. A layer's part of a block:
//   rows        [block_size][latent + rope], row-major: one row a position
//   row scales  fp32 [block_size][2], only with int8 rows: of the latent, and of the rope key
//   index keys  only in layers that have an indexer, 16 positions in lanes:
//               int8: codes + 128 as uint8 [block_size / 16][index_dim / 4][16][4]
//               f32, bf16: [block_size / 16][index_dim][16]
//   key scales  fp32 [block_size], only with int8 index keys
// Each of these is rounded up to 64 bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace millrace {

// One layer's part of a block, in bytes from the block's start; -1: the layer does not have it.
struct MlaLayerPlaces {
  int64_t rows = 0;
  int64_t row_scales = -1;
  int64_t index_keys = -1;
  int64_t index_scales = -1;
};

struct MlaLayout {
  DType dtype = DType::kF16;       // of rows: kF32, kF16, kBF16 or kI8
  DType index_dtype = DType::kI8;  // of index keys: kI8, kF32 or kBF16
  int block_size = 16;             // positions; a multiple of 16
  int latent = 0;                  // elements of a latent
  int rope = 0;                    // elements of a rope key
  int index_dim = 0;               // elements of an index key, a multiple of 4; 0: no indexers
  std::vector<MlaLayerPlaces> layers;
  int64_t block_bytes = 0;

  // `has_indexer` has a value for each layer.
  static MlaLayout make(const MlaLayout& sizes, const std::vector<uint8_t>& has_indexer);

  int row_size() const { return latent + rope; }
};

}  // namespace millrace
