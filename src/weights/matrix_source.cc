#include "weights/matrix_source.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor/packing.h"

namespace millrace {
namespace {

bool has_codes(const MatrixSource& source) {
  return !std::holds_alternative<std::monostate>(source.stored.codes);
}

int64_t columns_of(const MatrixSource& source) {
  if (const auto* int4 = std::get_if<Int4Tensor>(&source.stored.codes)) return int4->k;
  return source.stored.tensor->shape.back();
}

// The format that panels are packed from, if it is not one of codes.
WeightFormat packed_format(const MatrixSource& source) {
  if (source.to_f32 || has_codes(source)) return WeightFormat::kF32;
  const WeightFormat format = *source.stored.tensor->weight_format();
  return source.transposed && is_quantized(format) ? WeightFormat::kF32 : format;
}

Fp8Source fp8_source(const MatrixSource& source) {
  return {.tensor = std::get<Fp8Tensor>(source.stored.codes),
          .row_begin = source.row_begin,
          .transposed = source.transposed};
}

// Bytes of a stored row; 0 if rows are not stored one after the other.
int64_t stored_row_bytes(const MatrixSource& source) {
  const StoredMatrix& stored = source.stored;
  if (const auto* fp8 = std::get_if<Fp8Tensor>(&stored.codes)) return fp8->columns;
  if (const auto* int4 = std::get_if<Int4Tensor>(&stored.codes)) {
    return int4->packing == Int4Packing::kCompressedTensors ? int4->k / 2 : 0;
  }
  return row_bytes(*stored.tensor->weight_format(), columns_of(source));
}

// Columns [begin, end) of rows of `width` elements of `Unit`, turned: [end - begin][rows].
template <typename Unit>
void turn(const Unit* src, int64_t width, int64_t rows, int64_t begin, int64_t end, Unit* dst) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = begin; c < end; ++c) dst[(c - begin) * rows + r] = src[r * width + c];
  }
}

// Outputs [begin, end) in fp32, k elements each.
std::vector<float> expand_outputs(const MatrixSource& source, int64_t k, int64_t begin,
                                  int64_t end) {
  std::vector<float> outputs(static_cast<size_t>((end - begin) * k));
  if (!source.transposed) {
    expand_rows(source.stored, source.row_begin + begin, source.row_begin + end, outputs.data());
    return outputs;
  }
  const int64_t width = columns_of(source);
  std::vector<float> rows(static_cast<size_t>(k * width));
  expand_rows(source.stored, source.row_begin, source.row_begin + k, rows.data());
  turn(rows.data(), width, k, begin, end, outputs.data());
  return outputs;
}

// As expand_outputs, for 16-bit floats that stay what they are and are turned.
std::vector<uint16_t> turn_outputs(const MatrixSource& source, int64_t k, int64_t begin,
                                   int64_t end) {
  const int64_t width = columns_of(source);
  std::vector<uint16_t> rows(static_cast<size_t>(k * width));
  std::memcpy(rows.data(), source.stored.tensor->bytes.data() + source.row_begin * width * 2,
              rows.size() * 2);
  std::vector<uint16_t> outputs(static_cast<size_t>((end - begin) * k));
  turn(rows.data(), width, k, begin, end, outputs.data());
  return outputs;
}

// Packs rows of a format that begin with panel_begin's.
template <typename T>
void pack_rows(WeightFormat format, const std::vector<T>& rows, PackedMatrix matrix, int64_t n,
               std::byte* dst) {
  matrix.n = n;
  const auto* data = reinterpret_cast<const std::byte*>(rows.data());
  pack_panels({{.format = format, .data = data, .n = n}}, matrix, 0, matrix.num_panels(), dst);
}

}  // namespace

Result<PackedMatrix> packed_layout(const MatrixSource& source, int64_t n, int64_t k) {
  if (!source.to_f32 && has_codes(source)) {
    if (std::holds_alternative<Fp8Tensor>(source.stored.codes)) {
      return fp8_layout(fp8_source(source), n, k);
    }
    if (!source.transposed) return int4_layout(std::get<Int4Tensor>(source.stored.codes), n);
  }
  return packed_layout(packed_format(source), n, k);
}

void pack_panels(const MatrixSource& source, const PackedMatrix& matrix, int64_t panel_begin,
                 int64_t panel_end, std::byte* dst) {
  const StoredMatrix& stored = source.stored;
  if (std::holds_alternative<Fp8Tensor>(stored.codes)) {
    return pack_fp8_panels(fp8_source(source), matrix, panel_begin, panel_end, dst);
  }
  if (matrix.is_quantised() && has_codes(source)) {
    return pack_int4_panels(std::get<Int4Tensor>(stored.codes), source.row_begin, matrix,
                            panel_begin, panel_end, dst);
  }
  const WeightFormat format = packed_format(source);
  const bool as_stored = !has_codes(source) && format == *stored.tensor->weight_format();
  if (as_stored && !source.transposed) {
    const std::byte* data =
        stored.tensor->bytes.data() + source.row_begin * stored_row_bytes(source);
    return pack_panels({{.format = format, .data = data, .n = matrix.n}}, matrix, panel_begin,
                       panel_end, dst);
  }
  const int64_t begin = panel_begin * kPanelWidth;
  const int64_t end = std::min(panel_end * kPanelWidth, matrix.n);
  if (as_stored && format != WeightFormat::kF32) {
    return pack_rows(format, turn_outputs(source, matrix.k, begin, end), matrix, end - begin, dst);
  }
  pack_rows(WeightFormat::kF32, expand_outputs(source, matrix.k, begin, end), matrix, end - begin,
            dst);
}

void release_panels(const Checkpoint& checkpoint, const MatrixSource& source,
                    const PackedMatrix& matrix, int64_t panel_begin, int64_t panel_end) {
  if (source.transposed) return;
  const int64_t size = stored_row_bytes(source);
  const int64_t begin = panel_begin * kPanelWidth;
  const int64_t end = std::min(panel_end * kPanelWidth, matrix.n);
  checkpoint.release(*source.stored.tensor, (source.row_begin + begin) * size,
                     (end - begin) * size);
}

void release_matrix(const Checkpoint& checkpoint, const MatrixSource& source,
                    const PackedMatrix& matrix) {
  const int64_t size = stored_row_bytes(source);
  const int64_t rows = source.transposed ? matrix.k : matrix.n;
  if (size > 0) {
    checkpoint.release(*source.stored.tensor, source.row_begin * size, rows * size);
  } else {
    checkpoint.release(*source.stored.tensor);
  }
  if (source.stored.scales != nullptr) checkpoint.release(*source.stored.scales);
  if (source.stored.zeros != nullptr) checkpoint.release(*source.stored.zeros);
}

}  // namespace millrace
