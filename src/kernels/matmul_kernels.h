// The table of matmul kernels of one instruction set, and the plain types that they take.
//
// Files of every instruction set include this, so it holds nothing but plain types (see simd.h).
// The loops over items, K chunks and tiles are in matmul.cc; a kernel computes one tile of rows
// against a few panels over a list of K spans.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/packed_matrix.h"

namespace millrace {

enum class Isa : uint8_t;
enum class DType : uint8_t;

enum class ActivationKind : uint8_t { kF32, kBF16, kBF16Wide, kInt8 };
inline constexpr int kNumActivationKinds = 4;

inline constexpr int kMaxTileRows = 12;
inline constexpr int kMaxSidePanels = 4;

// A run of K inside one leaf. Steps are single inputs (f32), pairs (bf16), groups of 32 (int8).
struct KSpan {
  int32_t begin;
  int32_t end;
  bool starts_leaf;  // the chain starts at +0; else where the span before it stopped
  int8_t ends_leaf;  // leaf whose chain ends here and joins the tree; -1: to be continued
};

// Where a tile's sums are kept, per panel: levels of [rows][16] floats. Leaf j's chain joins the
// tree as in binary counting: it is added to the root at level 0 if j is odd, that to level 1 if
// bit 1 of j is set, and so on, and stored at the first level whose bit is clear. After leaf 15 the
// result is at level 4; a sum that is one leaf (0) has it at level 0.
inline constexpr int kTreeLevels = 5;

// One tile of rows against up to four panels.
struct TileArgs {
  const std::byte* panels[kMaxSidePanels] = {};  // at step `origin`
  float* sums[kMaxSidePanels] = {};              // level 0, the tile's first row
  int64_t level_stride = 0;                      // floats from level to level
  int64_t carry_offset = 0;                      // floats from level 0 to the chain not yet ended
  const std::byte* activations = nullptr;        // the packed tile, at step 0
  const KSpan* spans = nullptr;
  int num_spans = 0;
  int32_t origin = 0;
  float leaf_scale = 1.0f;  // multiplies each leaf's chain before the first addition of the tree
  // Step i from the panel's start prefetches `prefetch_bytes` bytes, from `prefetch_distance` +
  // i * `prefetch_stride` bytes after the start on. Of a single pass matmul.cc says how much of a
  // step; of several passes over a chunk each takes its share of the next chunk. Side by side
  // panels: a whole step's bytes, `prefetch_distance` ahead, in a single pass only.
  int64_t prefetch_distance = 0;
  int64_t prefetch_stride = 0;
  int64_t prefetch_bytes = 0;
  // Side by side panels: what lies beyond `prefetch_wrap` bytes of a panel is the next panel, which
  // is being read already; the one to prefetch is `prefetch_skip` bytes further.
  int64_t prefetch_wrap = 0;
  int64_t prefetch_skip = 0;
};
using TileFunction = void (*)(const TileArgs& args);

// Expands `inputs` inputs of a panel, from input `begin` on, to float [inputs][16]. Whole groups
// (quantised, fp8), whole pairs (bf16).
using ExpandFunction = void (*)(PackedKind kind, const QuantLayout& layout, const std::byte* panel,
                                int64_t begin, int64_t inputs, float* dst);

// Packs `count` rows of k activations that are neighbours in a tile of m rows; `dst` is the first
// one's first word in it.
using PackRowsFunction = void (*)(const float* const* rows, int count, int64_t k, int m,
                                  std::byte* dst);

enum class Epilogue : uint8_t { kStore, kAddResidual, kSiluMul };

// The end of a matmul for `rows` rows of one panel: bias, activation, rounding, store.
struct FinishArgs {
  Epilogue epilogue = Epilogue::kStore;
  DType round{};
  int64_t rows = 0;
  int lanes = kPanelWidth;         // outputs of this panel (fewer in the last one)
  const float* sums = nullptr;     // [rows][16]
  const float* up_sums = nullptr;  // kSiluMul
  const float* bias = nullptr;     // this panel's, or null
  const float* up_bias = nullptr;
  float* out = nullptr;  // first row, this panel's first column
  int64_t out_stride = 0;
  float* residual = nullptr;  // kAddResidual, as out
  int64_t residual_stride = 0;
};
using FinishFunction = void (*)(const FinishArgs& args);

struct FloatKernels {
  const char* name;
  int tile_rows;                       // largest tile
  int panels;                          // side by side, for tiles of two rows or more
  int panels_single;                   // for tiles of one row
  TileFunction f32[kMaxTileRows + 1];  // by rows of the tile and kind of the panels
  TileFunction f16[kMaxTileRows + 1];
  TileFunction bf16[kMaxTileRows + 1];
  TileFunction fp8[kMaxTileRows + 1];
  ExpandFunction expand;
  FinishFunction finish;
  PackRowsFunction pack_f32;
  PackRowsFunction pack_bf16;
  PackRowsFunction pack_bf16_wide;
  PackRowsFunction pack_int8;
};

// Layouts of quantised panels that have an int8 kernel, by how their arithmetic differs.
enum class Int8Layout : uint8_t {
  kBits8Offset128,    // Q8_0
  kBits4Offset8,      // Q4_0
  kBits4Min,          // Q4_1
  kBits8Offset16,     // Q5_0
  kBits8Min,          // Q5_1
  kBits4WideMin,      // Q4_K
  kBits8WideMin,      // Q5_K
  kBits8Group16Wide,  // Q6_K, offset 32
  kBits4Offset8Wide,  // 4-bit codes without zero points, scales that are no halves
};
inline constexpr int kNumInt8Layouts = 9;

struct Int8Kernels {
  const char* name;
  int tile_rows;
  TileFunction tile[kNumInt8Layouts][kMaxTileRows + 1];
};

// bf16 weights times bf16 activations (numeric class bf16): by bf16 dot products with kBF16
// activations, or by two fma for each, with the same bits, with kBF16Wide activations.
struct Bf16Kernels {
  const char* name;
  ActivationKind activations;
  int tile_rows;
  int panels;  // side by side
  TileFunction tile[kMaxTileRows + 1];
  TileFunction expanded_tile[kMaxTileRows + 1];  // kBF16Wide: over weights expanded to floats
};

struct MatmulKernels {
  const char* name;  // "portable", "avx2", "avx512", "avx512vnni"
  const FloatKernels* floats;
  const Int8Kernels* int8;
  const Bf16Kernels* bf16;  // null if the instruction set has none
};

// The kernels of an instruction set, which the CPU must have. `with_bf16`: with those of
// the numeric class bf16, by what is faster on this CPU; needs has_bf16_class (kernels/isa.h).
const MatmulKernels& matmul_kernels(Isa isa, bool with_bf16);

}  // namespace millrace
