// Where latents, rope keys and indexer keys of multi-head latent attention lie in the paged cache.
//
// A block's number is its place in every array of the pool. First comes an array of all blocks'
// rows of all layers, layer after layer:
//   rows        [block_size][latent + rope], row-major: one row a position
//   row scales  fp32 [block_size][2], only with int8 rows: of the latent, and of the rope key
// After it, for each layer that has an indexer, an array of all blocks' index keys of that layer,
// 16 positions in lanes:
//   index keys  int8: codes + 128 as uint8 [block_size / 16][index_dim / 4][16][4]
//               f32, bf16: [block_size / 16][index_dim][16]
//   key scales  fp32 [block_size], only with int8 index keys
// Each of these is rounded up to 64 bytes. Rows are picked here and there, index keys are read from
// the first to the last: side by side, they take few pages and come from memory as a stream.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace millrace {

// Where a layer's parts are; -1: the layer does not have them.
struct MlaLayerPlaces {
  int64_t rows = 0;          // bytes from the start of a block's rows
  int64_t row_scales = -1;   // the same
  int64_t index_array = -1;  // which of the arrays of index keys
};

struct MlaLayout {
  DType dtype = DType::kF16;       // of rows: kF32, kF16, kBF16 or kI8
  DType index_dtype = DType::kI8;  // of index keys: kI8, kF32 or kBF16
  int block_size = 16;             // positions; a multiple of 16
  int latent = 0;                  // elements of a latent
  int rope = 0;                    // elements of a rope key
  int index_dim = 0;               // elements of an index key, a multiple of 4; 0: no indexers
  std::vector<MlaLayerPlaces> layers;
  int64_t rows_bytes = 0;     // of a block's rows of all layers
  int64_t index_scales = -1;  // bytes from the start of a block's index keys; -1: none
  int64_t index_bytes = 0;    // of a block's index keys and scales in one layer
  int64_t block_bytes = 0;    // of a block in all arrays

  // `has_indexer` has a value for each layer.
  static MlaLayout make(const MlaLayout& sizes, const std::vector<uint8_t>& has_indexer);

  int row_size() const { return latent + rope; }
};

}  // namespace millrace
