#include "kernels/matmul_roofs.h"
#include "kernels/simd.h"

namespace millrace {

double roof_bf16_avx512bf16(int64_t rounds) {
  constexpr int kChains = 16;
  __m512 acc[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_setzero_ps();
  const __m512i a = _mm512_set1_epi32(0x3f803f80);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      acc[i] = _mm512_dpbf16_ps(acc[i], (__m512bh)a, (__m512bh)a);
      asm volatile("" : "+v"(acc[i]));
    }
  }
  return kChains * 32.0;
}

}  // namespace millrace
