// Inner loops of latent attention: expansion of cached rows to fp32, scores, weights and weighted
// rows of tiles of 16 entries, heads in lanes. For files of one instruction set only, like simd.h.
//
// An expanded tile is [blocks of 16 elements][16 entries][16 elements]: scores and values both read
// single elements from it, each the broadcast operand of one fma, at constant distances.
#pragma once

#include "kernels/attention_mla.h"
#include "kernels/attention_vec.h"

namespace millrace {
namespace {

inline constexpr int kCacheLine = 64;
inline constexpr float kNegativeInfinity = -__builtin_inff();
// Floats of 16 elements of 16 entries.
inline constexpr int kTileBlock = 256;

// Sums that an inner loop keeps in registers: chains of entries, or elements of the latent.
#if defined(__AVX512F__)
inline constexpr int kMlaChains = 16;
#else
inline constexpr int kMlaChains = 4;
#endif

// a * *p + acc.
MR_INLINE V16 fma_broadcast(V16 acc, V16 a, const float* p) {
#if defined(__AVX512F__)
  // The form with an operand in memory: a broadcast of its own would take a slot of the FMA units.
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(a.v), "m"(*p));
  return acc;
#else
  return fma(a, set1(*p), acc);
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

// Up to 16 entries of a leaf's list.
struct MlaTile {
  const std::byte* rows[16];
  const float* scales[16];  // int8: of the latent and the rope key
  int count;
  int leaf;
  bool opens_leaf;
  bool closes_leaf;
};

template <DType kDType>
constexpr int element_bytes() {
  return kDType == DType::kF32 ? 4 : kDType == DType::kI8 ? 1 : 2;
}

template <DType kDType>
MR_INLINE V16 load_elements(const std::byte* p) {
  if constexpr (kDType == DType::kF16) return load_f16(reinterpret_cast<const uint16_t*>(p));
  if constexpr (kDType == DType::kBF16) return load_bf16(reinterpret_cast<const uint16_t*>(p));
  if constexpr (kDType == DType::kI8) return to_float(load_s8(reinterpret_cast<const int8_t*>(p)));
  return load(reinterpret_cast<const float*>(p));
}

// Expands one tile, a block of 16 elements of one entry at a time, and asks for the rows of the
// next tile meanwhile. The score loop calls step() so that both hide behind its arithmetic.
template <DType kDType>
class Expander {
 public:
  Expander(const MlaTile& tile, const MlaTile& next, int latent, int width, float* to)
      : tile_(tile), next_(next), latent_(latent), width_(width), to_(to) {}

  // Elements [16 * block, 16 * block + 16) of entry i of the tile; the same of the next tile are
  // fetched.
  MR_INLINE void step(int block, int i) const {
    constexpr int kBytes = 16 * element_bytes<kDType>();
    if (i < next_.count && block * kBytes % kCacheLine == 0) {
      prefetch_tile(next_.rows[i] + block * kBytes);
      if (kDType == DType::kI8 && block == 0) prefetch_tile(next_.scales[i]);
    }
    if (i >= tile_.count) return;
    float* to = to_ + block * kTileBlock + i * 16;
    if (16 * block + 16 <= width_) {
      V16 elements = load_elements<kDType>(tile_.rows[i] + block * kBytes);
      if constexpr (kDType == DType::kI8) elements = elements * scale(block, i);
      store(to, elements);
    } else if (16 * block < width_) {
      step_tail(block, i, to);
    }
  }

 private:
  // The scales of the 16 elements of a block.
  MR_INLINE V16 scale(int block, int i) const {
    const float* scales = tile_.scales[i];
    const int of_latent = latent_ - 16 * block;
    if (of_latent >= 16) return set1(scales[0]);
    if (of_latent <= 0) return set1(scales[1]);
    return select(mask_first(of_latent), set1(scales[0]), set1(scales[1]));
  }

  // The last, incomplete block of a row: nothing beyond the row is read.
  [[gnu::noinline]] void step_tail(int block, int i, float* to) const {
    constexpr int kSize = element_bytes<kDType>();
    alignas(64) std::byte elements[64] = {};
    __builtin_memcpy(elements, tile_.rows[i] + 16 * block * kSize,
                     static_cast<size_t>((width_ - 16 * block) * kSize));
    V16 tail = load_elements<kDType>(elements);
    if constexpr (kDType == DType::kI8) tail = tail * scale(block, i);
    store(to, tail);
  }

  const MlaTile& tile_;
  const MlaTile& next_;
  int latent_;
  int width_;
  float* to_;
};

struct NoExpander {
  MR_INLINE void step(int, int) const {}
};

// scores[e] = (chain over d of q[d] * entry e's element d) * scale, for kEntries entries from the
// one that `tile` points at. Block b + 1 is expanded while block b is used.
template <int kEntries, typename Expand>
void score_entries(const float* q, int width, const float* tile, float scale, const Expand& expand,
                   float* scores) {
  V16 acc[kEntries];
  MR_UNROLL(16)
  for (int e = 0; e < kEntries; ++e) acc[e] = zero();
  for (int block = 0; 16 * block < width; ++block, tile += kTileBlock) {
    const int count = width - 16 * block < 16 ? width - 16 * block : 16;
    for (int j = 0; j < count; ++j, q += kMlaLanes) {
      const V16 query = load(q);
      MR_UNROLL(16)
      for (int e = 0; e < kEntries; ++e) acc[e] = fma_broadcast(acc[e], query, tile + e * 16 + j);
      expand.step(block + 1, j);
    }
  }
  const V16 factor = set1(scale);
  MR_UNROLL(16)
  for (int e = 0; e < kEntries; ++e) store(scores + e * kMlaLanes, acc[e] * factor);
}

// Scores of all entries of a tile, whose first block has been expanded, and at most of absent ones
// up to a multiple of 4.
template <typename Expand>
MR_INLINE void score_tile(const float* q, int width, const float* tile, int count, float scale,
                          const Expand& expand, float* scores) {
  if constexpr (kMlaChains == 16) {
    if (count > 12) return score_entries<16>(q, width, tile, scale, expand, scores);
    if (count > 8) return score_entries<12>(q, width, tile, scale, expand, scores);
    if (count > 4) return score_entries<8>(q, width, tile, scale, expand, scores);
    return score_entries<4>(q, width, tile, scale, expand, scores);
  } else {
    score_entries<4>(q, width, tile, scale, expand, scores);
    for (int e = 4; e < count; e += 4) {
      score_entries<4>(q, width, tile + e * 16, scale, NoExpander{}, scores + e * kMlaLanes);
    }
  }
}

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
  const float* tiles;  // expanded, tile_stride floats apart
  int64_t tile_stride;
  const float* p;    // [tiles][16 entries][16 heads]
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
template <bool kFetch>
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
    const float* rows = values.tiles + t * values.tile_stride + block * kTileBlock + element;
    const float* weights = p + t * 16 * kMlaLanes;
    for (int e = 0; e < values.counts[t]; ++e, rows += 16, weights += kMlaLanes) {
      const V16 weight = load(weights);
      if constexpr (kFetch) prefetch(rows + kTileBlock);
      MR_UNROLL(16)
      for (int j = 0; j < kMlaChains; ++j) acc[j] = fma_broadcast(acc[j], weight, rows + j);
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
template <bool kFetch>
void add_block(const MlaValues& values, int block) {
  for (int element = 0; element < 16; element += kMlaChains) {
    add_elements<kFetch>(values, block, element);
  }
}

}  // namespace
}  // namespace millrace
