// Many rows at once: transposes, and reductions over the lanes of several vectors. For files of one
// instruction set only, like simd.h.
#pragma once

#include "kernels/simd_math.h"

namespace millrace {
namespace {

// MR_UNROLL(n): the loop must be unrolled, so that arrays of vectors become registers. Not in the
// portable build, whose vectors are arrays anyway: unrolling them would only make it slow to
// compile.
#if defined(__AVX2__)
#define MR_PRAGMA(text) _Pragma(#text)
#define MR_UNROLL(n) MR_PRAGMA(GCC unroll n)
inline constexpr bool kHasRegisters = true;
#else
#define MR_UNROLL(n)
inline constexpr bool kHasRegisters = false;
#endif

// Lanes 0, 2, 4, ... of a, then of b; and lanes 1, 3, 5, ...
MR_INLINE void unzip(V16 a, V16 b, V16& even, V16& odd) {
#if defined(__AVX512F__)
  const __m512i evens =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odds = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  even = {_mm512_permutex2var_ps(a.v, evens, b.v)};
  odd = {_mm512_permutex2var_ps(a.v, odds, b.v)};
#elif defined(__AVX2__)
  const auto in_order = [](__m256 x) __attribute__((always_inline)) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8));
  };
  even = {in_order(_mm256_shuffle_ps(a.lo, a.hi, 0x88)),
          in_order(_mm256_shuffle_ps(b.lo, b.hi, 0x88))};
  odd = {in_order(_mm256_shuffle_ps(a.lo, a.hi, 0xdd)),
         in_order(_mm256_shuffle_ps(b.lo, b.hi, 0xdd))};
#else
  float lanes[32];
  float split[32];
  store(lanes, a);
  store(lanes + 16, b);
  for (int i = 0; i < 16; ++i) {
    split[i] = lanes[2 * i];
    split[16 + i] = lanes[2 * i + 1];
  }
  even = load(split);
  odd = load(split + 16);
#endif
}

// 16 vectors as a 16 x 16 matrix, transposed in place.
MR_INLINE void transpose16(V16* rows) {
  // Each step moves one bit of the lane's index into the row's, and one back.
  MR_UNROLL(4)
  for (int step = 0; step < 4; ++step) {
    V16 next[16];
    MR_UNROLL(8)
    for (int i = 0; i < 8; ++i) unzip(rows[2 * i], rows[2 * i + 1], next[i], next[i + 8]);
    MR_UNROLL(16)
    for (int i = 0; i < 16; ++i) rows[i] = next[i];
  }
}

// From so many rows on transpose_rows is faster than copying element by element (by trial with
// AVX-512).
inline constexpr int kLeastRowsToTranspose = 8;

// to[i * m + r] = rows[r][i], for m <= 16 rows of k elements, 16 elements at a time.
MR_INLINE void transpose_rows(const float* const* rows, int64_t k, int m, float* to) {
  for (int64_t i = 0; i < k; i += 16, to += 16 * m) {
    const int count = k - i < 16 ? static_cast<int>(k - i) : 16;
    V16 vectors[16];
    for (int r = 0; r < 16; ++r) vectors[r] = r < m ? load_first(rows[r] + i, count) : zero();
    transpose16(vectors);
    for (int j = 0; j < count; ++j) store_first(to + j * m, vectors[j], m);
  }
}

struct AddLanes {
  MR_INLINE V16 operator()(V16 a, V16 b) const { return a + b; }
};
struct MaxLanes {
  MR_INLINE V16 operator()(V16 a, V16 b) const { return max(a, b); }
};

// Reduces the 16 lanes of each of kRows <= 16 rows by the tree of docs/numerics.md: lane r of the
// result is row r's. Lanes from kRows on hold anything.
template <int kRows, typename Op>
MR_INLINE V16 reduce_rows(const V16* rows, Op op) {
  V16 level[16];
  MR_UNROLL(16)
  for (int i = 0; i < kRows; ++i) level[i] = rows[i];
  // Each step halves the lanes of a row and puts two rows into one vector.
  MR_UNROLL(4)
  for (int step = 1; step <= 4; ++step) {
    const int count = (kRows + (1 << step) - 1) >> step;
    const int before = (kRows + (1 << (step - 1)) - 1) >> (step - 1);
    MR_UNROLL(8)
    for (int i = 0; i < count; ++i) {
      V16 even, odd;
      unzip(level[2 * i], level[2 * i + 1 < before ? 2 * i + 1 : 2 * i], even, odd);
      level[i] = op(even, odd);
    }
  }
  return level[0];
}

}  // namespace
}  // namespace millrace
