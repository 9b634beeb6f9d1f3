#include "tensor/block_fp8.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace millrace {
namespace {

constexpr uint8_t kNanCode = 0x7f;  // with either sign

// Where the codes of one output are: `stride` bytes from input to input.
struct Output {
  const std::byte* codes;
  int64_t stride;
};

Output output_of(const Fp8Source& source, int64_t output) {
  const Fp8Tensor& tensor = source.tensor;
  if (source.transposed) {
    return {tensor.codes + source.row_begin * tensor.columns + output, tensor.columns};
  }
  return {tensor.codes + (source.row_begin + output) * tensor.columns, 1};
}

float scale_of(const Fp8Source& source, int64_t output, int64_t input) {
  return source.transposed ? source.tensor.scale_at(source.row_begin + input, output)
                           : source.tensor.scale_at(source.row_begin + output, input);
}

// True if all outputs [begin, end) have the same scale at any input.
bool share_scale(const Fp8Source& source, int64_t begin, int64_t end) {
  const int64_t first = source.transposed ? begin : source.row_begin + begin;
  const int64_t last = first + (end - begin) - 1;
  const int block = source.transposed ? source.tensor.block_columns : source.tensor.block_rows;
  return first / block == last / block;
}

// One block of one lane; the scale of NaN codes is NaN.
void pack_lane(const Output& from, int64_t input, float scale, std::byte* lane_codes,
               std::byte* lane_scale) {
  const std::byte* src = from.codes + input * from.stride;
  bool nan = false;
  for (int i = 0; i < kFp8Group; ++i) {
    const std::byte code = src[i * from.stride];
    nan |= (static_cast<uint8_t>(code) & 0x7f) == kNanCode;
    lane_codes[i * kPanelWidth] = code;
  }
  if (nan) scale = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(lane_scale, &scale, 4);
}

void pack_panel(const Fp8Source& source, const PackedMatrix& matrix, int64_t panel,
                std::byte* dst) {
  const int64_t begin = panel * kPanelWidth;
  const int64_t lanes = std::min<int64_t>(kPanelWidth, matrix.n - begin);
  if (lanes < kPanelWidth) std::memset(dst, 0, static_cast<size_t>(matrix.panel_bytes()));
  const bool shared = share_scale(source, begin, begin + lanes);
  for (int64_t input = 0; input < matrix.k; input += kFp8Group, dst += kFp8BlockBytes) {
    float scale = scale_of(source, begin, input);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if (!shared) scale = scale_of(source, begin + lane, input);
      pack_lane(output_of(source, begin + lane), input, scale, dst + lane,
                dst + kFp8Group * kPanelWidth + lane * 4);
    }
  }
}

void pack_as_f32(const Fp8Source& source, const PackedMatrix& matrix, int64_t panel,
                 std::byte* dst) {
  for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
    const int64_t output = panel * kPanelWidth + lane;
    for (int64_t i = 0; i < matrix.k; ++i) {
      float value = 0.0f;
      if (output < matrix.n) {
        value = source.transposed ? source.tensor.weight_at(source.row_begin + i, output)
                                  : source.tensor.weight_at(source.row_begin + output, i);
      }
      std::memcpy(dst + (i * kPanelWidth + lane) * 4, &value, 4);
    }
  }
}

}  // namespace

float Fp8Tensor::scale_at(int64_t row, int64_t column) const {
  const int64_t across = (columns + block_columns - 1) / block_columns;
  const int64_t index = row / block_rows * across + column / block_columns;
  float scale;
  dequantize_row(scale_format, scales + index * row_bytes(scale_format, 1), &scale, 1);
  return scale;
}

PackedMatrix fp8_layout(const Fp8Source& source, int64_t n, int64_t k) {
  PackedMatrix matrix;
  matrix.n = n;
  matrix.k = k;
  const Fp8Tensor& tensor = source.tensor;
  const bool whole = source.transposed
                         ? tensor.block_rows % kFp8Group == 0 && source.row_begin % kFp8Group == 0
                         : tensor.block_columns % kFp8Group == 0;
  matrix.kind = whole && k % kFp8Group == 0 ? PackedKind::kFp8 : PackedKind::kF32;
  return matrix;
}

void pack_fp8_panels(const Fp8Source& source, const PackedMatrix& matrix, int64_t panel_begin,
                     int64_t panel_end, std::byte* dst) {
  for (int64_t panel = panel_begin; panel < panel_end; ++panel, dst += matrix.panel_bytes()) {
    if (matrix.kind == PackedKind::kF32) {
      pack_as_f32(source, matrix, panel, dst);
    } else {
      pack_panel(source, matrix, panel, dst);
    }
  }
}

}  // namespace millrace
