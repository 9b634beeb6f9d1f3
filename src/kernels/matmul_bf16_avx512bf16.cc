// bf16 weights times bf16 activations by bf16 dot products: the numeric class bf16.
//
// One step takes a pair of inputs: acc + second * second' and + first * first', in the order and
// with the rounding of the instruction (denormals count as zero). Otherwise as the f32 kernels.
#include "kernels/matmul_tile.h"
#include "kernels/matmul_variants.h"

namespace millrace {
namespace {

MR_INLINE V16 dot_pairs(V16 acc, I16 a, I16 b) {
  return {_mm512_dpbf16_ps(acc.v, (__m512bh)a.v, (__m512bh)b.v)};
}

template <int kRows, int kPanels>
void bf16_tile(const TileArgs& args) {
  const uint8_t* panels[kPanels];
  for (int p = 0; p < kPanels; ++p) panels[p] = reinterpret_cast<const uint8_t*>(args.panels[p]);
  for (int s = 0; s < args.num_spans; ++s) {
    const KSpan span = args.spans[s];
    V16 acc[kPanels][kRows];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) begin_span<kRows>(args, p, span, acc[p]);
    const uint8_t* x =
        reinterpret_cast<const uint8_t*>(args.activations) + int64_t{span.begin} * kRows * 4;
    int64_t w = int64_t{span.begin - args.origin} * 64;
#pragma GCC unroll 2
    for (int32_t step = span.begin; step < span.end; ++step, x += 4 * kRows, w += 64) {
      I16 pairs[kPanels];
      const int64_t ahead = prefetch_place(args, w);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        if constexpr (kRows <= kMaxRowsToPrefetch) prefetch_level2(panels[p] + ahead);
        pairs[p] = load_int(panels[p] + w);
      }
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        const I16 value = broadcast4(x + 4 * m);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) acc[p][m] = dot_pairs(acc[p][m], value, pairs[p]);
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) end_span<kRows>(args, p, span, acc[p]);
  }
}

constexpr int kSidePanels = 2;

template <int... kRows>
Bf16Kernels make_bf16_kernels(const char* name) {
  Bf16Kernels kernels{};
  kernels.name = name;
  kernels.activations = ActivationKind::kBF16;
  ((kernels.tile_rows = kRows), ...);
  kernels.panels = kSidePanels;
  ((kernels.tile[kRows] = bf16_tile<kRows, kSidePanels>), ...);
  return kernels;
}

}  // namespace

const Bf16Kernels& bf16_kernels_avx512bf16() {
  static const Bf16Kernels kernels =
      make_bf16_kernels<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>("avx512bf16");
  return kernels;
}

}  // namespace millrace
