#include "kernels/activations.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace millrace {
namespace {

PackRowsFunction pack_function(const FloatKernels& kernels, ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kF32:
      return kernels.pack_f32;
    case ActivationKind::kBF16:
      return kernels.pack_bf16;
    case ActivationKind::kBF16Wide:
      return kernels.pack_bf16_wide;
    case ActivationKind::kInt8:
      return kernels.pack_int8;
  }
  MR_CHECK(false, "bad activation kind");
}

}  // namespace

int64_t packed_row_bytes(ActivationKind kind, int64_t k) {
  switch (kind) {
    case ActivationKind::kF32:
      return k * 4;
    case ActivationKind::kBF16:
      MR_CHECK(k % 2 == 0, "{} inputs are no bf16 pairs", k);
      return k * 2;
    case ActivationKind::kBF16Wide:
      MR_CHECK(k % 2 == 0, "{} inputs are no bf16 pairs", k);
      return k * 4;
    case ActivationKind::kInt8:
      MR_CHECK(k % kActivationGroup == 0, "{} inputs are no groups of 32", k);
      return k / kActivationGroup * 48;
  }
  MR_CHECK(false, "bad activation kind");
}

PackedActivations packed_activations(const MatmulKernels& kernels, ActivationKind kind,
                                     int64_t rows, int64_t k, std::byte* data) {
  PackedActivations packed{.kind = kind, .rows = rows, .k = k, .data = data};
  if (kind == ActivationKind::kF32) {
    packed.tile_rows = kernels.floats->tile_rows;
  } else if (kind == ActivationKind::kInt8) {
    packed.tile_rows = kernels.int8->tile_rows;
  } else {
    MR_CHECK(kernels.bf16 != nullptr && kernels.bf16->activations == kind,
             "{} has no bf16 kernels for this form", kernels.name);
    packed.tile_rows = kernels.bf16->tile_rows;
  }
  return packed;
}

void pack_rows(const MatmulKernels& kernels, std::span<const float* const> rows, int64_t row_begin,
               const PackedActivations& dst) {
  const PackRowsFunction pack = pack_function(*kernels.floats, dst.kind);
  const int64_t row_size = packed_row_bytes(dst.kind, dst.k);
  const int64_t tiles = dst.num_tiles();
  const int64_t row_end = row_begin + static_cast<int64_t>(rows.size());
  if (rows.empty()) return;
  int64_t tile = row_begin * tiles / dst.rows;
  for (int64_t row = row_begin; row < row_end;) {
    while (tile > 0 && dst.tile_begin(tile) > row) --tile;
    while (dst.tile_begin(tile + 1) <= row) ++tile;
    const int64_t first = dst.tile_begin(tile);
    const int64_t tile_end = dst.tile_begin(tile + 1);
    const int64_t count = std::min(tile_end, row_end) - row;
    pack(rows.data() + (row - row_begin), static_cast<int>(count), dst.k,
         static_cast<int>(tile_end - first), dst.data + first * row_size + (row - first) * 4);
    row += count;
  }
}

int64_t bytes_of(const TileColumns& columns, ActivationKind kind) {
  MR_CHECK(packs_columns(kind), "columns of groups");
  return columns.count * columns.rows * packed_row_bytes(kind, 2) / 2;
}

std::byte* place_of(const TileColumns& columns, const PackedActivations& dst) {
  const TileColumns before{columns.row_begin, columns.rows, 0, columns.begin};
  return dst.data + columns.row_begin * packed_row_bytes(dst.kind, dst.k) +
         bytes_of(before, dst.kind);
}

void pack_columns(const MatmulKernels& kernels, const float* x, int64_t stride,
                  const TileColumns& columns, const PackedActivations& dst) {
  MR_CHECK(columns.rows <= kMaxTileRows, "a tile of {} rows", columns.rows);
  std::array<const float*, kMaxTileRows> rows;
  for (int64_t r = 0; r < columns.rows; ++r) rows[static_cast<size_t>(r)] = x + r * stride;
  pack_function(*kernels.floats, dst.kind)(rows.data(), static_cast<int>(columns.rows),
                                           columns.count, static_cast<int>(columns.rows),
                                           place_of(columns, dst));
}

void pack_activations(const MatmulKernels& kernels, const float* x, int64_t stride,
                      int64_t row_begin, int64_t row_end, const PackedActivations& dst) {
  std::array<const float*, kMaxTileRows> rows;
  for (int64_t row = row_begin; row < row_end;) {
    size_t count = 0;
    for (; count < rows.size() && row + static_cast<int64_t>(count) < row_end; ++count) {
      rows[count] = x + (row + static_cast<int64_t>(count)) * stride;
    }
    pack_rows(kernels, {rows.data(), count}, row, dst);
    row += static_cast<int64_t>(count);
  }
}

}  // namespace millrace
