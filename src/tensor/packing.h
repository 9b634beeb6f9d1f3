// Packing: rows of checkpoint tensors into the panels of a PackedMatrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "tensor/packed_matrix.h"
#include "tensor/weight_format.h"

namespace millrace {

// `n` rows of a checkpoint tensor of `k` columns, row-major and contiguous, or a choice of them.
struct PackSource {
  WeightFormat format = WeightFormat::kF32;
  const std::byte* data = nullptr;  // need not be aligned
  int64_t n = 0;                    // outputs that this source gives
  // Output o of the source is row rows[o] of the tensor; null: row o. (Shards; un-permuted q and
  // k.)
  const int64_t* rows = nullptr;
};

// The packed form of a matrix of n outputs and k inputs in `format`; panels stay null. Floats stay
// as they are (BF16 with an odd k becomes F32), 4-bit codes stay 4 bits, 5- to 8-bit codes become
// bytes, and super-blocks are split into their sub-blocks with float scales. Error if k is no
// multiple of the format's block.
Result<PackedMatrix> packed_layout(WeightFormat format, int64_t n, int64_t k);

// Packs panels [panel_begin, panel_end) of `matrix` into dst, the place of panel_begin (its
// memory is matrix.panel_bytes() a panel). The sources, all of the matrix's format, one below the
// other, make its n outputs; padding outputs become zero. Threads may pack ranges side by side.
void pack_panels(const std::vector<PackSource>& sources, const PackedMatrix& matrix,
                 int64_t panel_begin, int64_t panel_end, std::byte* dst);

// Expands output `row` of a packed matrix to fp32: k floats, equal bit by bit to dequantize_row of
// the tensor's row, or to what block_fp8.h and int4_groups.h say. (Embedding lookup.)
void unpack_panel_row(const PackedMatrix& matrix, int64_t row, float* dst);

}  // namespace millrace
