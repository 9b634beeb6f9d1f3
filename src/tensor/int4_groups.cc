#include "tensor/int4_groups.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace millrace {
namespace {

constexpr int kBlock = 32;  // inputs of a packed block
constexpr int kCodesInWord = 8;
constexpr int kSymmetricZero = 8;
// The nibble of each output in a word of AWQ.
constexpr std::array<int, 8> kAwqNibbles = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t word_at(const std::byte* words, int64_t index) {
  uint32_t word;
  std::memcpy(&word, words + 4 * index, 4);
  return word;
}

int nibble(uint32_t word, int index) { return static_cast<int>(word >> (4 * index) & 15); }

// The eight nibbles of a word as bytes, the lowest first.
uint64_t spread(uint32_t word) {
  uint64_t x = word;
  x = (x | x << 16) & 0x0000ffff0000ffffu;
  x = (x | x << 8) & 0x00ff00ff00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

using LaneCodes = uint8_t[kPanelWidth][kBlock];

// Codes of inputs [input, input + 32) of outputs [output, output + lanes).
void read_codes(const Int4Tensor& tensor, int64_t output, int64_t lanes, int64_t input,
                LaneCodes& codes) {
  if (tensor.packing == Int4Packing::kAwq) {
    const int64_t stride = tensor.n / kCodesInWord;
    for (int i = 0; i < kBlock; ++i) {
      for (int64_t o = output; o < output + lanes;) {
        const uint32_t word = word_at(tensor.codes, (input + i) * stride + o / kCodesInWord);
        uint8_t bytes[kCodesInWord];
        const uint64_t all = spread(word);
        std::memcpy(bytes, &all, sizeof(bytes));
        const int64_t stop = std::min(output + lanes, (o / kCodesInWord + 1) * kCodesInWord);
        for (; o < stop; ++o) {
          codes[o - output][i] = bytes[kAwqNibbles[static_cast<size_t>(o % kCodesInWord)]];
        }
      }
    }
    return;
  }
  const bool gptq = tensor.packing == Int4Packing::kGptq;
  const int64_t first = input / kCodesInWord;
  for (int w = 0; w < kBlock / kCodesInWord; ++w) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t index = gptq ? (first + w) * tensor.n + output + lane
                                 : (output + lane) * (tensor.k / kCodesInWord) + first + w;
      const uint64_t bytes = spread(word_at(tensor.codes, index));
      std::memcpy(codes[lane] + w * kCodesInWord, &bytes, sizeof(bytes));
    }
  }
}

// Index of a scale.
int64_t scale_index(const Int4Tensor& tensor, int64_t output, int64_t group) {
  return tensor.packing == Int4Packing::kCompressedTensors ? output * tensor.num_groups() + group
                                                           : group * tensor.n + output;
}

// Low nibbles: inputs 0..15; high nibbles: inputs 16..31.
void put_codes(const uint8_t* codes, int64_t lane, std::byte* block) {
  for (int i = 0; i < kBlock / 8; ++i) {
    const uint32_t low = word_at(reinterpret_cast<const std::byte*>(codes), i);
    const uint32_t high = word_at(reinterpret_cast<const std::byte*>(codes) + kBlock / 2, i);
    const uint32_t both = low | high << 4;
    std::memcpy(block + (i * kPanelWidth + lane) * 4, &both, 4);
  }
}

void put_scales(const Int4Tensor& tensor, const QuantLayout& layout, int64_t output, int64_t group,
                std::byte* lane_scale) {
  const int64_t size = row_bytes(tensor.scale_format, 1);
  const std::byte* stored = tensor.scales + scale_index(tensor, output, group) * size;
  if (!layout.wide_scales) {
    std::memcpy(lane_scale, stored, 2);
    return;
  }
  float scale;
  dequantize_row(tensor.scale_format, stored, &scale, 1);
  std::memcpy(lane_scale, &scale, 4);
  if (!layout.has_min) return;
  const float min = -(scale * static_cast<float>(tensor.zero_at(output, group)));
  std::memcpy(lane_scale + layout.scale_bytes(), &min, 4);
}

}  // namespace

int Int4Tensor::zero_at(int64_t output, int64_t group_index) const {
  if (zeros == nullptr) return kSymmetricZero;
  const int place = static_cast<int>(output % kCodesInWord);
  const int64_t word = output / kCodesInWord;
  const int64_t words = n / kCodesInWord;
  switch (packing) {
    case Int4Packing::kGptq:
      return nibble(word_at(zeros, group_index * words + word), place) + zero_offset;
    case Int4Packing::kAwq:
      return nibble(word_at(zeros, group_index * words + word),
                    kAwqNibbles[static_cast<size_t>(place)]) +
             zero_offset;
    case Int4Packing::kCompressedTensors:
      break;
  }
  return nibble(word_at(zeros, word * num_groups() + group_index), place) + zero_offset;
}

PackedMatrix int4_layout(const Int4Tensor& tensor, int64_t n) {
  PackedMatrix matrix;
  matrix.kind = PackedKind::kQuantised;
  matrix.n = n;
  matrix.k = tensor.k;
  const bool symmetric = tensor.zeros == nullptr;
  matrix.quant = {.group = kBlock,
                  .bits = 4,
                  .code_offset = symmetric ? kSymmetricZero : 0,
                  .wide_scales = !symmetric || tensor.scale_format != WeightFormat::kF16,
                  .has_min = !symmetric};
  return matrix;
}

void pack_int4_panels(const Int4Tensor& tensor, int64_t row_begin, const PackedMatrix& matrix,
                      int64_t panel_begin, int64_t panel_end, std::byte* dst) {
  const QuantLayout& layout = matrix.quant;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel, dst += matrix.panel_bytes()) {
    const int64_t lanes = std::min<int64_t>(kPanelWidth, matrix.n - panel * kPanelWidth);
    const int64_t output = row_begin + panel * kPanelWidth;
    if (lanes < kPanelWidth) std::memset(dst, 0, static_cast<size_t>(matrix.panel_bytes()));
    for (int64_t input = 0; input < matrix.k; input += kBlock) {
      std::byte* block = dst + input / kBlock * layout.block_bytes();
      LaneCodes codes;
      read_codes(tensor, output, lanes, input, codes);
      for (int64_t lane = 0; lane < lanes; ++lane) {
        put_codes(codes[lane], lane, block);
        put_scales(tensor, layout, output + lane, input / tensor.group,
                   block + layout.code_bytes() + lane * (layout.wide_scales ? 4 : 2));
      }
    }
  }
}

}  // namespace millrace
