// compress_store: the chosen lanes of a vector side by side in memory, in their order. For files of
// one instruction set only, like simd.h.
#pragma once

#include "kernels/simd.h"

namespace millrace {
namespace {

// Writes the lanes whose bit is set in `chosen`, lane 0 first; up to 16 elements at `to` are
// overwritten, whatever the number of lanes chosen.
#if defined(__AVX512F__)

MR_INLINE void compress_store(int32_t* to, I16 a, uint32_t chosen) {
  // In a register, then a plain store: the form that writes memory is microcode on some CPUs.
  const auto mask = static_cast<__mmask16>(chosen);
  _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(mask, a.v));
}

#elif defined(__AVX2__)

// For each choice among 8 lanes, the chosen lanes' numbers.
struct CompressTable {
  uint8_t lanes[256][8];
};
constexpr CompressTable make_compress_table() {
  CompressTable table{};
  for (int chosen = 0; chosen < 256; ++chosen) {
    int count = 0;
    for (int lane = 0; lane < 8; ++lane) {
      if ((chosen >> lane & 1) != 0) table.lanes[chosen][count++] = static_cast<uint8_t>(lane);
    }
  }
  return table;
}
constexpr CompressTable kCompressTable = make_compress_table();

MR_INLINE __m256i compress_half(__m256i a, uint32_t chosen) {
  const auto* lanes = reinterpret_cast<const __m128i*>(kCompressTable.lanes[chosen]);
  return _mm256_permutevar8x32_epi32(a, _mm256_cvtepu8_epi32(_mm_loadl_epi64(lanes)));
}

MR_INLINE void compress_store(int32_t* to, I16 a, uint32_t chosen) {
  const uint32_t low = chosen & 0xffu;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), compress_half(a.lo, low));
  to += __builtin_popcount(low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), compress_half(a.hi, chosen >> 8));
}

#else

[[maybe_unused]] void compress_store(int32_t* to, const I16& a, uint32_t chosen) {
  int32_t lanes[16];
  store_int(lanes, a);
  for (int i = 0; i < 16; ++i) {
    if ((chosen >> i & 1u) != 0) *to++ = lanes[i];
  }
}

#endif

}  // namespace
}  // namespace millrace
