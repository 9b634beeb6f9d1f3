// Inner loops of latent attention that do not depend on how rows are multiplied: weights of tiles
// of 16 entries, weighted rows, heads in lanes. For files of one instruction set only, like simd.h.
//
// The rest is a template argument, Rows:
//   FloatRows<dtype>   expands rows to fp32 (attention_mla_float_impl.h)
//   PairRows           multiplies bf16 rows by bf16 dot products (attention_mla_avx512bf16.cc)
// It has:
//   kElementBytes      of a cached element
//   kEntriesPerStep    entries whose values one multiply_add takes
//   kBlock             32-bit words of 16 elements of an expanded tile, and of queries
//   multiply_add       acc + a * the word at p in all lanes
//   store_queries      16 elements of 16 heads, transposed, as score() wants them
//   Expander           makes what the values are read from; begin() before score(), which runs the
//                      rest of it between its arithmetic
//   score              a tile's scores, [entries][16 heads]
//   pack_weights       a tile's weights, in place, as multiply_add wants them
#pragma once

#include "kernels/attention_mla.h"
#include "kernels/attention_vec.h"

namespace millrace {
namespace {

inline constexpr int kCacheLine = 64;
inline constexpr float kNegativeInfinity = -__builtin_inff();
// Floats of 16 elements of 16 heads, or of 16 entries.
inline constexpr int kSquare = 256;

// Sums that an inner loop keeps in registers: chains of entries, or elements of the latent.
#if defined(__AVX512F__)
inline constexpr int kMlaChains = 16;
#else
inline constexpr int kMlaChains = 4;
#endif

// Up to 16 entries of a leaf's list.
struct MlaTile {
  const std::byte* rows[16];
  const float* scales[16];  // int8: of the latent and the rope key
  int count;
  int leaf;
  bool opens_leaf;
  bool closes_leaf;
};

// A tile that is to be expanded.
struct MlaExpansion {
  const MlaTile& tile;
  const MlaTile& next;  // its rows are fetched meanwhile
  int latent;
  int width;
  float* values;  // what the values are read from
  float* rows;    // what scores are read from, if not that
};

// What a tile's scores are made of: scores[e][head] = (q . row e) * scale.
struct MlaScores {
  const MlaExpansion& expansion;
  const float* q;  // of one group of heads, as store_queries left them
  float scale;
  float* scores;  // [16 entries][16 heads]
};

// An Expander that has nothing to do: the group is not the first of its tile.
struct NoExpander {
  template <bool kWhole>
  MR_INLINE void step(int, int) const {}
};

// Softmax state of a group of heads in the open leaf.
struct MlaRunning {
  float m[16];
  float slots[16][16];  // l by slot
};

// Turns a tile's scores into weights in place; c: the factor of the sums before the tile. False if
// c is 1 in all lanes.
MR_INLINE bool weigh_tile(int count, bool opens_leaf, float* scores, float* c,
                          MlaRunning& running) {
  if (opens_leaf) {
    store(running.m, set1(kNegativeInfinity));
    for (auto& slot : running.slots) store(slot, zero());
  }
  const V16 before = load(running.m);
  V16 m = before;
  for (int e = 0; e < count; ++e) m = max(load(scores + e * kMlaLanes), m);
  const bool grown = bits_of(greater(m, before)) != 0;
  const V16 factor = exp(before - m);
  for (int e = 0; e < count; ++e) {
    const V16 p = exp(load(scores + e * kMlaLanes) - m);
    store(scores + e * kMlaLanes, p);
    store(running.slots[e], fma(load(running.slots[e]), factor, p));
  }
  for (int e = count; grown && e < 16; ++e) {
    store(running.slots[e], fma(load(running.slots[e]), factor, zero()));
  }
  store(running.m, m);
  store(c, factor);
  return grown;
}

// The leaf's l: its slots' sums by the tree.
MR_INLINE V16 slots_tree(const MlaRunning& running) {
  V16 level[16];
  MR_UNROLL(16)
  for (int i = 0; i < 16; ++i) level[i] = load(running.slots[i]);
  MR_UNROLL(4)
  for (int width = 8; width >= 1; width /= 2) {
    MR_UNROLL(8)
    for (int i = 0; i < width; ++i) level[i] = level[2 * i] + level[2 * i + 1];
  }
  return level[0];
}

// One merge of the tree: acc = fma(acc, right_factor, left * left_factor).
struct MlaMergeStep {
  const float* left;
  float left_factor[16];
  float right_factor[16];
};

// Tiles of one leaf that are added to a group's sums.
struct MlaValues {
  const float* tiles;  // expanded, tile_stride words apart
  int64_t tile_stride;
  const float* p;    // [tiles][16][16 heads]: weights of a step each
  const float* c;    // [tiles][16]: factors of the sums before each tile
  uint32_t rescale;  // bit t: some factor of tile t is not 1
  const int* counts;
  int num_tiles;
  const float* from;  // the leaf's sums so far, [latent][16]; null: zero
  float* to;
  // When the leaf is complete: merges with finished neighbours, in order.
  const MlaMergeStep* steps;
  int num_steps;
};

// kMlaChains elements of the latent from `element` of block `block`.
template <typename Rows, bool kFetch>
MR_INLINE void add_elements(const MlaValues& values, int block, int element) {
  const int64_t offset = (int64_t{block} * 16 + element) * kMlaLanes;
  V16 acc[kMlaChains];
  MR_UNROLL(16)
  for (int j = 0; j < kMlaChains; ++j) {
    acc[j] = values.from == nullptr ? zero() : load(values.from + offset + j * kMlaLanes);
  }
  const float* p = values.p;
  for (int t = 0; t < values.num_tiles; ++t) {
    if ((values.rescale >> t & 1u) != 0) {
      const V16 c = load(values.c + t * kMlaLanes);
      MR_UNROLL(16)
      for (int j = 0; j < kMlaChains; ++j) acc[j] = acc[j] * c;
    }
    const float* rows = values.tiles + t * values.tile_stride + block * Rows::kBlock + element;
    const float* weights = p + t * kSquare;
    for (int e = 0; e < values.counts[t]; e += Rows::kEntriesPerStep) {
      const V16 weight = load(weights);
      if constexpr (kFetch) prefetch_level1(rows + Rows::kBlock);
      MR_UNROLL(16)
      for (int j = 0; j < kMlaChains; ++j) acc[j] = Rows::multiply_add(acc[j], weight, rows + j);
      rows += 16;
      weights += kMlaLanes;
    }
  }
  for (int s = 0; s < values.num_steps; ++s) {
    const MlaMergeStep& step = values.steps[s];
    const V16 c1 = load(step.left_factor);
    const V16 c2 = load(step.right_factor);
    MR_UNROLL(16)
    for (int j = 0; j < kMlaChains; ++j) {
      acc[j] = fma(acc[j], c2, load(step.left + offset + j * kMlaLanes) * c1);
    }
  }
  MR_UNROLL(16)
  for (int j = 0; j < kMlaChains; ++j) store(values.to + offset + j * kMlaLanes, acc[j]);
}

// All elements of a block.
template <typename Rows, bool kFetch>
void add_block(const MlaValues& values, int block) {
  for (int element = 0; element < 16; element += kMlaChains) {
    add_elements<Rows, kFetch>(values, block, element);
  }
}

}  // namespace
}  // namespace millrace
