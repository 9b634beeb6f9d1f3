#include "weights/matrix_source.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor/packing.h"

namespace millrace {
namespace {

int64_t columns_of(const MatrixSource& source) { return source.tensor->shape.back(); }

// The format that panels are packed from.
WeightFormat packed_format(const MatrixSource& source) {
  const WeightFormat format = *source.tensor->weight_format();
  return source.to_f32 || (source.transposed && is_quantized(format)) ? WeightFormat::kF32 : format;
}

int64_t row_size(const MatrixSource& source) {
  return row_bytes(*source.tensor->weight_format(), columns_of(source));
}

const std::byte* row_of(const MatrixSource& source, int64_t row) {
  return source.tensor->bytes.data() + (source.row_begin + row) * row_size(source);
}

// Columns [begin, end) of `rows` rows of `src`, elements of `Unit`, as rows of dst.
template <typename Unit>
void transpose(const std::byte* src, int64_t src_stride, int64_t rows, std::byte* dst) {
  const int64_t columns = src_stride / static_cast<int64_t>(sizeof(Unit));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(dst + (c * rows + r) * static_cast<int64_t>(sizeof(Unit)),
                  src + r * src_stride + c * static_cast<int64_t>(sizeof(Unit)), sizeof(Unit));
    }
  }
}

// Outputs [begin, end) as rows of checkpoint format packed_format(source), k elements each.
std::vector<std::byte> gather_rows(const MatrixSource& source, int64_t k, int64_t begin,
                                   int64_t end) {
  const WeightFormat from = *source.tensor->weight_format();
  const int64_t size = row_bytes(packed_format(source), 1);
  std::vector<std::byte> rows(static_cast<size_t>((end - begin) * k * size));
  if (!source.transposed) {
    std::vector<float> values(static_cast<size_t>((end - begin) * k));
    for (int64_t o = begin; o < end; ++o) {
      dequantize_row(from, row_of(source, o), values.data() + (o - begin) * k, k);
    }
    std::memcpy(rows.data(), values.data(), rows.size());
    return rows;
  }
  // The columns that are wanted, row by row, then turned.
  const int64_t width = end - begin;
  std::vector<std::byte> columns(rows.size());
  std::vector<float> row(static_cast<size_t>(columns_of(source)));
  for (int64_t r = 0; r < k; ++r) {
    std::byte* to = columns.data() + r * width * size;
    if (packed_format(source) == from) {
      std::memcpy(to, row_of(source, r) + begin * size, static_cast<size_t>(width * size));
    } else {
      dequantize_row(from, row_of(source, r), row.data(), columns_of(source));
      std::memcpy(to, row.data() + begin, static_cast<size_t>(width * size));
    }
  }
  if (size == 4) {
    transpose<uint32_t>(columns.data(), width * size, k, rows.data());
  } else {
    transpose<uint16_t>(columns.data(), width * size, k, rows.data());
  }
  return rows;
}

// Bytes of the tensor that hold the matrix.
void release_rows(const Checkpoint& checkpoint, const MatrixSource& source, int64_t begin,
                  int64_t end) {
  const int64_t size = row_size(source);
  checkpoint.release(*source.tensor, (source.row_begin + begin) * size, (end - begin) * size);
}

}  // namespace

Result<PackedMatrix> packed_layout(const MatrixSource& source, int64_t n, int64_t k) {
  return packed_layout(packed_format(source), n, k);
}

void pack_panels(const MatrixSource& source, const PackedMatrix& matrix, int64_t panel_begin,
                 int64_t panel_end, std::byte* dst) {
  const WeightFormat format = packed_format(source);
  if (!source.transposed && format == *source.tensor->weight_format()) {
    pack_panels({{.format = format, .data = row_of(source, 0), .n = matrix.n}}, matrix, panel_begin,
                panel_end, dst);
    return;
  }
  const int64_t begin = panel_begin * kPanelWidth;
  const int64_t end = std::min(panel_end * kPanelWidth, matrix.n);
  const std::vector<std::byte> rows = gather_rows(source, matrix.k, begin, end);
  PackedMatrix part = matrix;
  part.n = end - begin;
  pack_panels({{.format = format, .data = rows.data(), .n = part.n}}, part, 0,
              panel_end - panel_begin, dst);
}

void release_panels(const Checkpoint& checkpoint, const MatrixSource& source,
                    const PackedMatrix& matrix, int64_t panel_begin, int64_t panel_end) {
  if (source.transposed) return;
  release_rows(checkpoint, source, panel_begin * kPanelWidth,
               std::min(panel_end * kPanelWidth, matrix.n));
}

void release_matrix(const Checkpoint& checkpoint, const MatrixSource& source,
                    const PackedMatrix& matrix) {
  release_rows(checkpoint, source, 0, source.transposed ? matrix.k : matrix.n);
}

}  // namespace millrace
