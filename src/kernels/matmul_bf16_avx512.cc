// The numeric class bf16 without bf16 dot products: two fma in the place of each, for CPUs whose
// dot products are no faster. The bits are those of matmul_bf16_avx512bf16.cc.
//
// A dot product takes the second of a pair before the first, rounds after each, and counts
// denormals as zero, in what it reads and in what it gives.
#include "kernels/matmul_float_tile.h"
#include "kernels/matmul_variants.h"

namespace millrace {
namespace {

struct Bf16Rule {
  static constexpr bool kSecondFirst = true;
  static constexpr unsigned kDenormalsAreZero = 0x0040;
  static constexpr unsigned kFlushToZero = 0x8000;
  unsigned saved;

  MR_INLINE void begin() {
    saved = _mm_getcsr();
    _mm_setcsr(saved | kDenormalsAreZero | kFlushToZero);
  }
  MR_INLINE void end() { _mm_setcsr(saved); }
};

constexpr int kSidePanels = 2;

template <int... kRows>
Bf16Kernels make_bf16_kernels(const char* name) {
  Bf16Kernels kernels{};
  kernels.name = name;
  kernels.activations = ActivationKind::kBF16Wide;
  ((kernels.tile_rows = kRows), ...);
  kernels.panels = kSidePanels;
  ((kernels.tile[kRows] = float_tile<Bf16Rule, BF16Panel, kRows, kSidePanels>), ...);
  ((kernels.expanded_tile[kRows] = float_tile<Bf16Rule, F32Panel, kRows, kSidePanels>), ...);
  return kernels;
}

}  // namespace

const Bf16Kernels& bf16_kernels_avx512() {
  static const Bf16Kernels kernels =
      make_bf16_kernels<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>("avx512");
  return kernels;
}

}  // namespace millrace
