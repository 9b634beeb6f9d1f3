// The left operand of a matmul: rows of fp32 activations, packed into tiles of a few rows in the
// form that the kernels broadcast from, and quantised to int8 or rounded to bf16 on the way.
//
// n rows make ceil(n / R) tiles of nearly equal height, R being the largest tile of the kernels for
// this kind. The tiling never changes a result. Layout of a tile of m rows:
//   kF32   float [k][m]
//   kBF16  bf16  [k/2][m][2]
//   kBF16Wide  float [k][m], values of bf16
//   kInt8  per group of 32 inputs: int8 [8][m][4] codes (input 4*i + j), then four words a row:
//          float [m] scale, int32 [m] minus the sum of the codes, float [m] scale * float(sum),
//          int32 [m] minus the sum of the first 16 codes
// Row r of a tile of m rows is at 4*r bytes from the tile's start, then every 4*m bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/matmul_kernels.h"

namespace millrace {

inline constexpr int kActivationGroup = 32;

// Bytes of one packed row of k activations. kInt8: k is a multiple of 32; kBF16 and
// kBF16Wide: of 2.
int64_t packed_row_bytes(ActivationKind kind, int64_t k);

// A view of packed activations (no ownership).
struct PackedActivations {
  ActivationKind kind = ActivationKind::kF32;
  int64_t rows = 0;
  int64_t k = 0;
  int tile_rows = 1;  // largest tile of the kernels that will read it
  std::byte* data = nullptr;

  int64_t bytes() const { return rows * packed_row_bytes(kind, k); }
  int64_t num_tiles() const { return (rows + tile_rows - 1) / tile_rows; }
  // First row of tile t; t = num_tiles() gives the number of rows.
  int64_t tile_begin(int64_t t) const {
    const int64_t tiles = num_tiles();
    if (tiles == 0) return 0;
    const int64_t extra = rows % tiles;
    return rows / tiles * t + (t < extra ? t : extra);
  }
};

// A view over `data` (packed_row_bytes(kind, k) * rows bytes, 64-byte aligned; may be null to size
// things) for `rows` rows that `kernels` will multiply. One tile has the kind's most rows at most.
PackedActivations packed_activations(const MatmulKernels& kernels, ActivationKind kind,
                                     int64_t rows, int64_t k, std::byte* data);

// Packs rows [row_begin, row_end) of x [rows][stride]; other rows of `dst` are not touched, so any
// thread may pack any rows.
//
// int8, per row and group of 32: amax = the largest |x|. If x has a NaN or an infinity: scale NaN,
// codes 0 (so that it shows). If amax < 2^-120: scale 0, codes 0. Else scale = amax / 127 and
// code = nearest even of x * (127 / amax).
void pack_activations(const MatmulKernels& kernels, const float* x, int64_t stride,
                      int64_t row_begin, int64_t row_end, const PackedActivations& dst);

// The same for rows that lie anywhere: rows[i] becomes row row_begin + i. Rows of one tile together
// are faster than one after the other.
void pack_rows(const MatmulKernels& kernels, std::span<const float* const> rows, int64_t row_begin,
               const PackedActivations& dst);

// Whether columns of a tile can be packed apart from each other: they lie one after the other. (The
// scales of int8 need whole groups.)
inline bool packs_columns(ActivationKind kind) { return kind != ActivationKind::kInt8; }

// All rows of a tile, some columns: from an even one, an even number of them for bf16.
struct TileColumns {
  int64_t row_begin = 0;  // of the tile
  int64_t rows = 0;
  int64_t begin = 0;
  int64_t count = 0;
};
// Where these columns begin in `dst`: each of them is a word, or half a word, of every row.
std::byte* place_of(const TileColumns& columns, const PackedActivations& dst);
int64_t bytes_of(const TileColumns& columns, ActivationKind kind);

// Packs these columns from x [columns.rows][stride], the first of them being x[0]; different
// threads may pack different columns. packs_columns(dst.kind) only.
void pack_columns(const MatmulKernels& kernels, const float* x, int64_t stride,
                  const TileColumns& columns, const PackedActivations& dst);

}  // namespace millrace
