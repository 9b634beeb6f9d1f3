// Weights of 4 bits in groups of inputs, as GPTQ, AWQ and compressed-tensors store them: a weight
// is scale * (code - zero), where scale and zero belong to an output and a group of inputs.
//
// Codes and zero points are packed eight to a little-endian 32-bit word, from the low bits up:
// - kGptq: codes [k / 8][n] (a word: eight inputs); zeros [groups][n / 8] (a word: eight outputs);
//   scales [groups][n]
// - kAwq: codes [k][n / 8], zeros [groups][n / 8] (words of eight outputs, in the order 0, 2, 4, 6,
//   1, 3, 5, 7); scales [groups][n]
// - kCompressedTensors: codes [n][k / 8] (a word: eight inputs); zeros [n / 8][groups] (a word:
//   eight outputs); scales [n][groups]
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/packed_matrix.h"
#include "tensor/weight_format.h"

namespace millrace {

enum class Int4Packing : uint8_t { kGptq, kAwq, kCompressedTensors };

// A tensor with its companions.
struct Int4Tensor {
  Int4Packing packing = Int4Packing::kGptq;
  const std::byte* codes = nullptr;
  const std::byte* zeros = nullptr;  // null: every zero point is 8
  const std::byte* scales = nullptr;
  WeightFormat scale_format = WeightFormat::kF16;  // kF16, kBF16 or kF32
  int zero_offset = 0;  // added to a stored zero point: 1 in the first version of GPTQ's format
  int64_t n = 0;        // outputs; a multiple of 8
  int64_t k = 0;        // inputs; a multiple of 32
  int group = 128;      // a multiple of 32; the last group may be short

  int64_t num_groups() const { return (k + group - 1) / group; }
  int zero_at(int64_t output, int64_t group_index) const;
};

// The packed form of n outputs; panels stay null. Blocks of 32 inputs, a group's scale in each of
// its blocks: without zero points codes with offset 8 (half scales if they are stored as halves,
// else floats), with them float scales and minimums, -scale * zero in fp32 (exact for 16-bit
// scales).
PackedMatrix int4_layout(const Int4Tensor& tensor, int64_t n);

// As pack_panels (packing.h), for the outputs from row_begin on.
void pack_int4_panels(const Int4Tensor& tensor, int64_t row_begin, const PackedMatrix& matrix,
                      int64_t panel_begin, int64_t panel_end, std::byte* dst);

}  // namespace millrace
