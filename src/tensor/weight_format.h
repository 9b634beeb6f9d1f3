// Weight formats of checkpoints: plain floats and the quantised block formats of GGUF files, with
// the one exact expansion of each to fp32.
//
// A quantised row is a run of blocks. Every format has the same algebra: a weight is
// scale * (code - offset) + min, where scale and min belong to a group of consecutive weights and
// the code is an unsigned integer. All of it is evaluated in fp32, multiplication first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

inline constexpr int kNumWeightFormats = 11;

// Facts of a format. Lengths are in weights unless they say bytes.
struct FormatInfo {
  std::string_view name;  // "F16", "Q4_K", ...
  int block;              // weights in a block; 1 for plain floats
  int bytes;              // bytes of a block
  int group;              // weights that share a scale (and minimum); 1 for plain floats
  int bits;               // bits of a code (4, 5, 6, 8), or of a plain float (16, 32)
  int offset;             // subtracted from a code: 128 in Q8_0, 8 in Q4_0, 16 in Q5_0, 32 in Q6_K
  bool quantized;
  bool has_min;
  bool scales_fit_f16;  // scales and minimums are stored as halves, not as products of two numbers
};

const FormatInfo& info(WeightFormat format);

inline std::string_view name_of(WeightFormat format) { return info(format).name; }
inline bool is_quantized(WeightFormat format) { return info(format).quantized; }

// Parses "F32", "q4_k", ... (case does not matter).
std::optional<WeightFormat> parse_weight_format(std::string_view name);

// Bytes of a row of `k` weights; `k` must be a multiple of the block.
int64_t row_bytes(WeightFormat format, int64_t k);

// Expands `n` weights (a multiple of the block, starting at a block) to fp32. This is the
// definition of what a weight is; kernels must agree with it bit for bit. `src` need not be
// aligned.
void dequantize_row(WeightFormat format, const std::byte* src, float* dst, int64_t n);

// Takes the blocks of a quantised row apart: `n` codes, one a byte, in weight order, and n / group
// scales and minimums. For every weight i of group g:
//   no minimum:  scales[g] * (codes[i] - offset)             == dequantize_row's value, bit for bit
//   has_min:     scales[g] * codes[i] + mins[g]              likewise (mins[g] = -dmin*m in K
//   formats)
// `mins` is not touched, and may be null, if the format has none. Quantised formats only.
void unpack_row(WeightFormat format, const std::byte* src, int64_t n, uint8_t* codes, float* scales,
                float* mins);

}  // namespace millrace
