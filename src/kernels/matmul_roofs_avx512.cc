#include "kernels/matmul_roofs.h"
#include "kernels/simd.h"

namespace millrace {

double roof_fma_avx512(int64_t rounds) {
  constexpr int kChains = 16;
  __m512 acc[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 a = _mm512_set1_ps(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      acc[i] = _mm512_fmadd_ps(acc[i], a, a);
      asm volatile("" : "+v"(acc[i]));
    }
  }
  return kChains * 16.0;
}

int64_t roof_read_avx512(const std::byte* memory, int64_t bytes) {
  __m512i sum[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) sum[i] = _mm512_setzero_si512();
  for (int64_t at = 0; at < bytes; at += 512) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(memory + at + 4096 + 64 * i), _MM_HINT_T1);
      sum[i] = _mm512_xor_si512(sum[i], _mm512_loadu_si512(memory + at + 64 * i));
    }
  }
#pragma GCC unroll 8
  for (int i = 1; i < 8; ++i) sum[0] = _mm512_xor_si512(sum[0], sum[i]);
  asm volatile("" : "+v"(sum[0]));
  return _mm512_reduce_add_epi32(sum[0]);
}

}  // namespace millrace
