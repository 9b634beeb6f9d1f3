#include "kernels/matmul_roofs.h"
#include "kernels/simd.h"

namespace millrace {

double roof_int8_avx512vnni(int64_t rounds) {
  constexpr int kChains = 16;
  __m512i acc[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(1);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      acc[i] = _mm512_dpbusd_epi32(acc[i], a, a);
      asm volatile("" : "+v"(acc[i]));
    }
  }
  return kChains * 64.0;
}

}  // namespace millrace
