// Weight matrices in the layout that the matmul kernels stream: panels of 16 outputs.
//
// A matrix has n outputs (rows of the checkpoint tensor) and k inputs. Output o lives in lane o %
// 16 of panel o / 16; the last panel is padded with zero outputs. One panel is contiguous, and so
// are consecutive panels, so one thread reads one straight stream of memory. The layout is the same
// for all instruction sets (a vector of 16 lanes is one AVX-512 or two AVX2 registers).
//
// Panel layouts, by kind:
//   kF32    float  [k][16]
//   kF16    half   [k][16]
//   kBF16   bf16   [k/2][16][2]   (k even; odd k is packed as kF32): pairs for bf16 dot products
//   kFp8    k / 32 blocks (block_fp8.h), each
//     codes  uint8 [32][16]        E4M3; a weight is worth code * scale, rounded to fp32 once
//     scale  float [16]
//   quantised kinds: k / group blocks, each
//     codes  8 bits: uint8 [group/4][16][4]                   byte = code of input 4*i + j
//            4 bits: uint8 [group/8][16][4]                   low nibble: input 4*i + j,
//                                                             high nibble: input group/2 + 4*i + j
//     scales half or float [16]
//     mins   half or float [16], if has_min
//
// A quantised weight is worth  scale * (code - code_offset) + min, in fp32, in that order (at most
// one rounding: the product is exact): bit for bit what dequantize_row (weight_format.h) gives.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

inline constexpr int kPanelWidth = 16;

enum class PackedKind : uint8_t { kF32, kF16, kBF16, kFp8, kQuantised };

// Inputs of a block of kFp8, and its bytes.
inline constexpr int kFp8Group = 32;
inline constexpr int kFp8BlockBytes = kFp8Group * kPanelWidth + 4 * kPanelWidth;

// How the blocks of a quantised matrix are laid out.
struct QuantLayout {
  int group = 32;            // inputs that share a scale: 32 or 16
  int bits = 8;              // bits of a code in memory: 4 or 8
  int code_offset = 0;       // integer weight = code - code_offset
  bool wide_scales = false;  // scales and mins are float (else half)
  bool has_min = false;

  int code_bytes() const { return group * bits / 8 * kPanelWidth; }
  int scale_bytes() const { return (wide_scales ? 4 : 2) * kPanelWidth; }
  // Bytes of one block of a panel: codes, scales, mins.
  int block_bytes() const { return code_bytes() + scale_bytes() * (has_min ? 2 : 1); }

  bool operator==(const QuantLayout&) const = default;
};

// A view of a packed matrix (no ownership).
struct PackedMatrix {
  PackedKind kind = PackedKind::kF32;
  QuantLayout quant;  // for kQuantised
  int64_t n = 0;      // outputs
  int64_t k = 0;      // inputs
  const std::byte* panels = nullptr;

  int64_t num_panels() const { return (n + kPanelWidth - 1) / kPanelWidth; }
  int64_t panel_bytes() const;
  int64_t total_bytes() const { return num_panels() * panel_bytes(); }
  const std::byte* panel(int64_t index) const { return panels + index * panel_bytes(); }
  // True if this kind may be multiplied with int8 activations.
  bool is_quantised() const { return kind == PackedKind::kQuantised; }
};

inline int64_t PackedMatrix::panel_bytes() const {
  switch (kind) {
    case PackedKind::kF32:
      return k * kPanelWidth * 4;
    case PackedKind::kF16:
    case PackedKind::kBF16:
      return k * kPanelWidth * 2;
    case PackedKind::kFp8:
      return k / kFp8Group * kFp8BlockBytes;
    case PackedKind::kQuantised:
      return k / quant.group * quant.block_bytes();
  }
  return 0;
}

}  // namespace millrace
