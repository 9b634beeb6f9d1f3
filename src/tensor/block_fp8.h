// Block-FP8 weights as DeepSeek-V3 is published: E4M3 codes, and a scale for each block of rows and
// columns (DeepSeek-V3 technical report, section 3.3).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/packed_matrix.h"
#include "tensor/weight_format.h"

namespace millrace {

// What a weight is worth: one rounding. The one definition; kernels agree with it bit for bit.
inline float fp8_weight(uint8_t code, float scale) { return f8e4m3_to_f32(code) * scale; }

// A tensor of codes [rows][columns] with scales [ceil(rows / block_rows)][ceil(columns /
// block_columns)], both row-major; the last blocks may be short.
struct Fp8Tensor {
  const std::byte* codes = nullptr;
  int64_t columns = 0;
  const std::byte* scales = nullptr;
  WeightFormat scale_format = WeightFormat::kF32;  // kF32 or kBF16
  int block_rows = 128;
  int block_columns = 128;

  float scale_at(int64_t row, int64_t column) const;
  float weight_at(int64_t row, int64_t column) const {
    return fp8_weight(static_cast<uint8_t>(codes[row * columns + column]), scale_at(row, column));
  }
};

// The part of a tensor that a matrix is made of: rows from row_begin on, or those transposed (then
// the matrix' outputs are all columns, and its inputs the rows).
struct Fp8Source {
  Fp8Tensor tensor;
  int64_t row_begin = 0;
  bool transposed = false;
};

// The packed form of n outputs and k inputs of a source; panels stay null. kFp8 if every 32 inputs
// of an output share a scale, so k is a multiple of 32; else kF32, expanded exactly.
PackedMatrix fp8_layout(const Fp8Source& source, int64_t n, int64_t k);

// As pack_panels (packing.h). A code that is NaN makes its scale NaN, and with it the 31 weights
// beside it: what such an output is multiplied to is NaN in either case.
void pack_fp8_panels(const Fp8Source& source, const PackedMatrix& matrix, int64_t panel_begin,
                     int64_t panel_end, std::byte* dst);

}  // namespace millrace
