// What the tile kernels of all weight kinds share: where a chain starts and where it ends. For
// files of one instruction set only, like simd.h.
#pragma once

#include "kernels/matmul_kernels.h"
#include "kernels/simd.h"

namespace millrace {
namespace {

// The chains of a tile of kRows rows and one panel at the start of a span.
template <int kRows>
MR_INLINE void begin_span(const TileArgs& args, int panel, const KSpan& span, V16* acc) {
  const float* carry = args.sums[panel] + args.carry_offset;
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) acc[m] = span.starts_leaf ? zero() : load(carry + m * 16);
}

// Where to prefetch (into the second-level cache: several streams crowd the first), from a panel's
// start, when the byte at `at` is read. Side by side panels.
MR_INLINE int64_t prefetch_place(const TileArgs& args, int64_t at) {
  const int64_t ahead = at + args.prefetch_distance;
  return ahead < args.prefetch_wrap ? ahead : ahead + args.prefetch_skip;
}

// Rows up to which a tile of side by side panels waits for memory, so that prefetching pays.
constexpr int kMaxRowsToPrefetch = 4;

// The chains at the end of a span: kept for the next one, or added to the tree.
template <int kRows>
MR_INLINE void end_span(const TileArgs& args, int panel, const KSpan& span, V16* acc) {
  float* sums = args.sums[panel];
  if (span.ends_leaf < 0) {
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) store(sums + args.carry_offset + m * 16, acc[m]);
    return;
  }
  if (args.leaf_scale != 1.0f) {
    const V16 scale = set1(args.leaf_scale);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) mul_into(acc[m], scale);
  }
  for (int leaf = span.ends_leaf; (leaf & 1) != 0; leaf >>= 1) {
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) add_into(acc[m], load(sums + m * 16));
    sums += args.level_stride;
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) store(sums + m * 16, acc[m]);
}

}  // namespace
}  // namespace millrace
