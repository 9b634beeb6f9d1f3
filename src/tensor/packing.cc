#include "tensor/packing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "tensor/block_fp8.h"
#include "tensor/dtype.h"

namespace millrace {
namespace {

// The rows of one panel: 16 pointers to checkpoint rows, null for padding.
using PanelRows = std::array<const std::byte*, kPanelWidth>;

// Finds the checkpoint rows of panels in a list of sources.
class RowFinder {
 public:
  RowFinder(const std::vector<PackSource>& sources, int64_t k) : sources_(sources) {
    row_size_ = sources.empty() ? 0 : row_bytes(sources.front().format, k);
  }

  // Panels must be asked for in ascending order.
  PanelRows rows_of(int64_t panel) {
    PanelRows rows{};
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      const int64_t output = panel * kPanelWidth + lane;
      while (at_ < sources_.size() && output >= begin_ + sources_[at_].n) {
        begin_ += sources_[at_].n;
        ++at_;
      }
      if (at_ == sources_.size()) break;
      const PackSource& source = sources_[at_];
      const int64_t row = output - begin_;
      const int64_t from = source.rows != nullptr ? source.rows[row] : row;
      rows[static_cast<size_t>(lane)] = source.data + from * row_size_;
    }
    return rows;
  }

 private:
  const std::vector<PackSource>& sources_;
  int64_t row_size_ = 0;
  size_t at_ = 0;
  int64_t begin_ = 0;  // first output of sources_[at_]
};

// Units of U interleaved by lane: dst [count][16] from 16 rows [count].
template <typename U>
void interleave(const PanelRows& rows, int64_t count, std::byte* dst) {
  // Blocks of 16 units: a block of each row stays in registers or first-level cache.
  constexpr int64_t kBlock = 16;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    for (size_t lane = 0; lane < kPanelWidth; ++lane) {
      std::byte* to = dst + (begin * kPanelWidth + static_cast<int64_t>(lane)) * sizeof(U);
      U units[kBlock] = {};
      if (rows[lane] != nullptr) {
        std::memcpy(units, rows[lane] + begin * static_cast<int64_t>(sizeof(U)),
                    static_cast<size_t>(size) * sizeof(U));
      }
      for (int64_t i = 0; i < size; ++i) {
        std::memcpy(to + i * kPanelWidth * static_cast<int64_t>(sizeof(U)), units + i, sizeof(U));
      }
    }
  }
}

// BF16 rows of an odd length, as floats.
void pack_bf16_as_f32(const PanelRows& rows, int64_t k, std::byte* dst) {
  for (size_t lane = 0; lane < kPanelWidth; ++lane) {
    for (int64_t i = 0; i < k; ++i) {
      float value = 0.0f;
      if (rows[lane] != nullptr) dequantize_row(WeightFormat::kBF16, rows[lane] + 2 * i, &value, 1);
      std::memcpy(dst + (i * kPanelWidth + static_cast<int64_t>(lane)) * 4, &value, 4);
    }
  }
}

// Codes of one group of one lane, `group` of them, into a block's code area.
void put_byte_codes(const uint8_t* codes, int group, size_t lane, std::byte* block) {
  for (int i = 0; i < group / 4; ++i) {
    std::memcpy(block + (i * kPanelWidth + static_cast<int>(lane)) * 4, codes + 4 * i, 4);
  }
}

void put_nibble_codes(const uint8_t* codes, int group, size_t lane, std::byte* block) {
  for (int i = 0; i < group / 8; ++i) {
    uint32_t low;
    uint32_t high;
    std::memcpy(&low, codes + 4 * i, 4);
    std::memcpy(&high, codes + group / 2 + 4 * i, 4);
    const uint32_t both = low | high << 4;
    std::memcpy(block + (i * kPanelWidth + static_cast<int>(lane)) * 4, &both, 4);
  }
}

void put_scale(float scale, bool wide, size_t lane, std::byte* scales) {
  if (wide) {
    std::memcpy(scales + lane * 4, &scale, 4);
  } else {
    const uint16_t half = f32_to_f16(scale);
    std::memcpy(scales + lane * 2, &half, 2);
  }
}

// Any quantised format, by way of unpack_row.
void pack_quantised(WeightFormat format, const PanelRows& rows, const PackedMatrix& matrix,
                    std::byte* dst) {
  const QuantLayout& layout = matrix.quant;
  const FormatInfo& facts = info(format);
  constexpr int kMostCodes = 256;
  const int groups = facts.block / layout.group;
  for (size_t lane = 0; lane < kPanelWidth; ++lane) {
    if (rows[lane] == nullptr) continue;
    for (int64_t b = 0; b < matrix.k / facts.block; ++b) {
      alignas(64) uint8_t codes[kMostCodes];
      float scales[kMostCodes / 16];
      float mins[kMostCodes / 16];
      unpack_row(format, rows[lane] + b * facts.bytes, facts.block, codes, scales, mins);
      for (int g = 0; g < groups; ++g) {
        std::byte* block = dst + (b * groups + g) * layout.block_bytes();
        if (layout.bits == 8) {
          put_byte_codes(codes + g * layout.group, layout.group, lane, block);
        } else {
          put_nibble_codes(codes + g * layout.group, layout.group, lane, block);
        }
        std::byte* after = block + layout.code_bytes();
        put_scale(scales[g], layout.wide_scales, lane, after);
        if (layout.has_min) {
          put_scale(mins[g], layout.wide_scales, lane, after + layout.scale_bytes());
        }
      }
    }
  }
}

// The common formats, whose scales are copied as they are and whose codes move by words. `Put`
// places the codes of one checkpoint block: put(block bytes after the halves, lane, codes area).
template <int kBytes, int kHalves, typename Put>
void pack_simple(const PanelRows& rows, const PackedMatrix& matrix, std::byte* dst, Put put) {
  const int block_bytes = matrix.quant.block_bytes();
  const int code_bytes = matrix.quant.code_bytes();
  const int64_t blocks = matrix.k / 32;
  // A few blocks at a time: the destination stays in the first-level cache.
  constexpr int64_t kRun = 16;
  for (int64_t begin = 0; begin < blocks; begin += kRun) {
    const int64_t end = std::min(begin + kRun, blocks);
    for (size_t lane = 0; lane < kPanelWidth; ++lane) {
      if (rows[lane] == nullptr) continue;
      for (int64_t b = begin; b < end; ++b) {
        const std::byte* src = rows[lane] + b * kBytes;
        std::byte* block = dst + b * block_bytes;
        for (int h = 0; h < kHalves; ++h) {
          std::memcpy(block + code_bytes + h * 2 * kPanelWidth + lane * 2, src + 2 * h, 2);
        }
        put(src + 2 * kHalves, block + lane * 4);
      }
    }
  }
}

void pack_q8_0(const PanelRows& rows, const PackedMatrix& matrix, std::byte* dst) {
  pack_simple<34, 1>(rows, matrix, dst, [](const std::byte* codes, std::byte* to) {
    for (int i = 0; i < 8; ++i) {
      uint32_t word;
      std::memcpy(&word, codes + 4 * i, 4);
      word ^= 0x80808080u;  // two's complement plus 128
      std::memcpy(to + 64 * i, &word, 4);
    }
  });
}

// Q4_0 and Q4_1 blocks have weight i in the low nibble of byte i and weight 16 + i in its high one,
// which is how panels want them.
void put_q4(const std::byte* codes, std::byte* to) {
  for (int i = 0; i < 4; ++i) std::memcpy(to + 64 * i, codes + 4 * i, 4);
}

void pack_panel(WeightFormat format, const PanelRows& rows, const PackedMatrix& matrix,
                std::byte* dst) {
  if (matrix.kind == PackedKind::kQuantised) {
    // Padding outputs stay zero.
    if (rows.back() == nullptr) std::memset(dst, 0, static_cast<size_t>(matrix.panel_bytes()));
    if (format == WeightFormat::kQ8_0) return pack_q8_0(rows, matrix, dst);
    if (format == WeightFormat::kQ4_0) return pack_simple<18, 1>(rows, matrix, dst, put_q4);
    if (format == WeightFormat::kQ4_1) return pack_simple<20, 2>(rows, matrix, dst, put_q4);
    return pack_quantised(format, rows, matrix, dst);
  }
  if (format == WeightFormat::kBF16 && matrix.kind == PackedKind::kF32) {
    return pack_bf16_as_f32(rows, matrix.k, dst);
  }
  // bf16 panels interleave pairs, which are words like floats.
  if (format == WeightFormat::kF32) return interleave<uint32_t>(rows, matrix.k, dst);
  if (format == WeightFormat::kBF16) return interleave<uint32_t>(rows, matrix.k / 2, dst);
  interleave<uint16_t>(rows, matrix.k, dst);
}

}  // namespace

Result<PackedMatrix> packed_layout(WeightFormat format, int64_t n, int64_t k) {
  const FormatInfo& facts = info(format);
  PackedMatrix matrix;
  matrix.n = n;
  matrix.k = k;
  if (!facts.quantized) {
    matrix.kind = PackedKind::kF32;
    if (format == WeightFormat::kF16) matrix.kind = PackedKind::kF16;
    if (format == WeightFormat::kBF16 && k % 2 == 0) matrix.kind = PackedKind::kBF16;
    return matrix;
  }
  if (k % facts.block != 0) {
    return fail("{} rows of {} weights are no whole blocks of {}", facts.name, k, facts.block);
  }
  matrix.kind = PackedKind::kQuantised;
  matrix.quant = {.group = facts.group,
                  .bits = facts.bits == 4 ? 4 : 8,
                  .code_offset = facts.offset,
                  .wide_scales = !facts.scales_fit_f16,
                  .has_min = facts.has_min};
  return matrix;
}

void pack_panels(const std::vector<PackSource>& sources, const PackedMatrix& matrix,
                 int64_t panel_begin, int64_t panel_end, std::byte* dst) {
  int64_t outputs = 0;
  for (const PackSource& source : sources) {
    MR_CHECK(source.format == sources.front().format, "sources of different formats");
    outputs += source.n;
  }
  MR_CHECK(outputs == matrix.n, "sources of {} rows for a matrix of {}", outputs, matrix.n);
  RowFinder finder(sources, matrix.k);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    pack_panel(sources.front().format, finder.rows_of(panel), matrix, dst);
    dst += matrix.panel_bytes();
  }
}

namespace {

void unpack_quantised_row(const PackedMatrix& matrix, const std::byte* panel, int lane,
                          float* dst) {
  const QuantLayout& layout = matrix.quant;
  const auto scale_at = [&](const std::byte* scales) {
    if (layout.wide_scales) {
      float value;
      std::memcpy(&value, scales + lane * 4, 4);
      return value;
    }
    uint16_t half;
    std::memcpy(&half, scales + lane * 2, 2);
    return f16_to_f32(half);
  };
  for (int64_t g = 0; g < matrix.k / layout.group; ++g) {
    const std::byte* block = panel + g * layout.block_bytes();
    const float scale = scale_at(block + layout.code_bytes());
    const float min =
        layout.has_min ? scale_at(block + layout.code_bytes() + layout.scale_bytes()) : 0.0f;
    for (int i = 0; i < layout.group; ++i) {
      const int half = layout.group / 2;
      const int at = layout.bits == 8 ? i : i % half;
      int code = static_cast<int>(block[(at / 4 * kPanelWidth + lane) * 4 + at % 4]);
      if (layout.bits == 4) code = i < half ? code & 0x0f : code >> 4;
      const float product = scale * static_cast<float>(code - layout.code_offset);
      dst[g * layout.group + i] = layout.has_min ? product + min : product;
    }
  }
}

void unpack_fp8_row(const PackedMatrix& matrix, const std::byte* panel, int lane, float* dst) {
  for (int64_t g = 0; g < matrix.k / kFp8Group; ++g) {
    const std::byte* block = panel + g * kFp8BlockBytes;
    float scale;
    std::memcpy(&scale, block + kFp8Group * kPanelWidth + lane * 4, 4);
    for (int i = 0; i < kFp8Group; ++i) {
      dst[g * kFp8Group + i] =
          fp8_weight(static_cast<uint8_t>(block[i * kPanelWidth + lane]), scale);
    }
  }
}

}  // namespace

void unpack_panel_row(const PackedMatrix& matrix, int64_t row, float* dst) {
  const std::byte* panel = matrix.panel(row / kPanelWidth);
  const int lane = static_cast<int>(row % kPanelWidth);
  if (matrix.is_quantised()) return unpack_quantised_row(matrix, panel, lane, dst);
  if (matrix.kind == PackedKind::kFp8) return unpack_fp8_row(matrix, panel, lane, dst);
  for (int64_t i = 0; i < matrix.k; ++i) {
    if (matrix.kind == PackedKind::kF32) {
      std::memcpy(dst + i, panel + (i * kPanelWidth + lane) * 4, 4);
      continue;
    }
    int64_t index = i * kPanelWidth + lane;
    if (matrix.kind == PackedKind::kBF16) index = (i / 2 * kPanelWidth + lane) * 2 + i % 2;
    uint16_t bits;
    std::memcpy(&bits, panel + index * 2, 2);
    dst[i] = matrix.kind == PackedKind::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

}  // namespace millrace
