// Inner loops of attention: scores, weights and weighted values of tiles of 16 positions, for kRows
// query rows that share every loaded vector. For files of one instruction set only, like simd.h.
#pragma once

#include "kernels/attention_gqa.h"
#include "kernels/attention_vec.h"

namespace millrace {
namespace {

inline constexpr int kCacheLine = 64;
inline constexpr float kNegativeInfinity = -__builtin_inff();

template <DType kDType>
struct CacheType;
template <>
struct CacheType<DType::kF32> {
  using Element = float;
  MR_INLINE static Wide load(const float* p) { return wide_load(p); }
};
template <>
struct CacheType<DType::kF16> {
  using Element = uint16_t;
  MR_INLINE static Wide load(const uint16_t* p) { return wide_load_f16(p); }
};
template <>
struct CacheType<DType::kBF16> {
  using Element = uint16_t;
  MR_INLINE static Wide load(const uint16_t* p) { return wide_load_bf16(p); }
};
template <>
struct CacheType<DType::kI8> {
  using Element = int8_t;
  MR_INLINE static Wide load(const int8_t* p) { return wide_load_s8(p); }
};

// Accumulators of kRows rows by `width` vectors, the vectors and one broadcast must fit in
// registers.
template <int kRows>
constexpr int register_tiles() {
  if (!kHasRegisters) return 1;
  constexpr int kRegisters = kWide == 8 ? 16 : 32;
  for (int width = kAttentionTiles; width > 1; width /= 2) {
    if (kRows * width + width + 1 < kRegisters) return width;
  }
  return 1;
}

// 16 consecutive positions in the cache.
template <typename Element>
struct Tile {
  const Element* k;
  const Element* v;
  const float* k_scale;
  const float* v_scale;
  int64_t first_position;
  bool opens_leaf;
  bool closes_leaf;
};

// Asks for a cache line of a tile; `near`: one that is in the second-level cache already, so that
// it can be had in the first.
MR_INLINE void prefetch_tile(const void* p, bool near) {
  if (near) {
    prefetch_level1(p);
  } else {
    prefetch_tile(p);
  }
}

// scores[t][r][i] = chain over d of q[d][r] * k[t][d][i]. Asks for the tiles' values meanwhile:
// keys and values of a tile are of one size.
template <DType kDType, int kRows, int kTiles>
void score_tiles(const float* q, int head_dim,
                 const Tile<typename CacheType<kDType>::Element>* tiles, bool near, float* scores) {
  using Cache = CacheType<kDType>;
  for (int lane = 0; lane < 16; lane += kWide) {
    Wide acc[kRows][kTiles];
    MR_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      MR_UNROLL(4)
      for (int t = 0; t < kTiles; ++t) acc[r][t] = wide_zero();
    }
    const typename Cache::Element* k[kTiles];
    MR_UNROLL(4)
    for (int t = 0; t < kTiles; ++t) k[t] = tiles[t].k + lane;
    const float* q_d = q;
    for (int64_t d = 0; d < head_dim; ++d, q_d += kRows) {
      Wide keys[kTiles];
      MR_UNROLL(4)
      for (int t = 0; t < kTiles; ++t) keys[t] = Cache::load(k[t] + d * kKvGroup);
      constexpr int64_t kBytes = kKvGroup * sizeof(typename Cache::Element);
      if (lane == 0 && d * kBytes % kCacheLine == 0) {
        MR_UNROLL(4)
        for (int t = 0; t < kTiles; ++t) prefetch_tile(tiles[t].v + d * kKvGroup, near);
      }
      MR_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const Wide element = wide_set1(q_d[r]);
        MR_UNROLL(4)
        for (int t = 0; t < kTiles; ++t) wide_fma_into(acc[r][t], element, keys[t]);
      }
    }
    MR_UNROLL(4)
    for (int t = 0; t < kTiles; ++t) {
      MR_UNROLL(16)
      for (int r = 0; r < kRows; ++r) wide_store(scores + (t * kRows + r) * 16 + lane, acc[r][t]);
    }
  }
}

template <DType kDType, int kRows>
void score_batch(const float* q, int head_dim,
                 const Tile<typename CacheType<kDType>::Element>* tiles, int num_tiles, bool near,
                 float* scores) {
  constexpr int kWidth = register_tiles<kRows>();
  int t = 0;
  if constexpr (kWidth >= 4) {
    for (; t + 4 <= num_tiles; t += 4) {
      score_tiles<kDType, kRows, 4>(q, head_dim, tiles + t, near, scores + t * kRows * 16);
    }
  }
  if constexpr (kWidth >= 2) {
    for (; t + 2 <= num_tiles; t += 2) {
      score_tiles<kDType, kRows, 2>(q, head_dim, tiles + t, near, scores + t * kRows * 16);
    }
  }
  for (; t < num_tiles; ++t) {
    score_tiles<kDType, kRows, 1>(q, head_dim, tiles + t, near, scores + t * kRows * 16);
  }
}

// A run of tiles of one leaf whose values are added in one go, so that sums stay in registers.
template <typename Element>
struct ValueRun {
  const Element* v[kAttentionTiles] = {};      // [16][v_stride]
  const Element* ahead[kAttentionTiles] = {};  // memory of the same size that is needed soon
  bool near = false;                           // where it is, see prefetch_tile
  int64_t v_stride = 0;
  const float* p = nullptr;  // weights: [tiles][p_stride], a row's 16 side by side
  int64_t p_stride = 0;
  const float* c = nullptr;  // factors of the sums so far: [tiles][16]
  uint32_t rescale = 0;      // bit t: some factor of tile t is not 1
  int num_tiles = 0;
  bool fresh = false;  // the sums so far are zero and not in memory
  // Entries of a tile that are added: all, or, in a run of one tile, the first counts[r] for row r,
  // ascending.
  const int* counts = nullptr;
};

// Adds entries from counts[0] on of a run's one tile, for the rows that see them.
template <DType kDType, int kRows, int kChunks>
MR_INLINE void add_tail_entries(const ValueRun<typename CacheType<kDType>::Element>& run,
                                int64_t element, Wide (*acc)[kChunks]) {
  const int* counts = run.counts;
  for (int64_t i = counts[0]; i < counts[kRows - 1]; ++i) {
    Wide row[kChunks];
    MR_UNROLL(4)
    for (int j = 0; j < kChunks; ++j) {
      row[j] = CacheType<kDType>::load(run.v[0] + element + i * run.v_stride + j * kWide);
    }
    MR_UNROLL(16)
    for (int r = 1; r < kRows; ++r) {
      if (i >= counts[r]) continue;
      const Wide weight = wide_set1(run.p[r * 16 + i]);
      MR_UNROLL(4)
      for (int j = 0; j < kChunks; ++j) wide_fma_into(acc[r][j], weight, row[j]);
    }
  }
}

// acc[r][j] = acc[r][j] * c[r], then a chain over the row's entries of p[r][i] * v[i][j], tile by
// tile, for kChunks vectors of elements from `element`.
template <DType kDType, int kRows, int kChunks>
void add_value_chunks(const ValueRun<typename CacheType<kDType>::Element>& run, int64_t element,
                      float* acc_rows, int64_t acc_stride) {
  using Cache = CacheType<kDType>;
  const int64_t num_entries = run.counts != nullptr ? run.counts[0] : 16;
  Wide acc[kRows][kChunks];
  MR_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    MR_UNROLL(4)
    for (int j = 0; j < kChunks; ++j) {
      acc[r][j] = run.fresh ? wide_zero() : wide_load(acc_rows + r * acc_stride + j * kWide);
    }
  }
  for (int t = 0; t < run.num_tiles; ++t) {
    if ((run.rescale >> t & 1u) != 0) {
      MR_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const Wide c = wide_set1(run.c[t * 16 + r]);
        MR_UNROLL(4)
        for (int j = 0; j < kChunks; ++j) acc[r][j] = wide_mul(acc[r][j], c);
      }
    }
    const float* p = run.p + t * run.p_stride;
    const auto* v = run.v[t] + element;
    const auto* ahead = run.ahead[t] + element;
    for (int64_t i = 0; i < num_entries; ++i) {
      Wide row[kChunks];
      MR_UNROLL(4)
      for (int j = 0; j < kChunks; ++j) {
        row[j] = Cache::load(v + i * run.v_stride + j * kWide);
        // Once a cache line (where kChunks vectors begin with one).
        constexpr int kBytes = kWide * static_cast<int>(sizeof(typename Cache::Element));
        if (j * kBytes % kCacheLine == 0) {
          prefetch_tile(ahead + i * run.v_stride + j * kWide, run.near);
        }
      }
      MR_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const Wide weight = wide_set1(p[r * 16 + i]);
        MR_UNROLL(4)
        for (int j = 0; j < kChunks; ++j) wide_fma_into(acc[r][j], weight, row[j]);
      }
    }
  }
  if constexpr (kRows > 1) {
    if (run.counts != nullptr) add_tail_entries<kDType, kRows, kChunks>(run, element, acc);
  }
  MR_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    MR_UNROLL(4)
    for (int j = 0; j < kChunks; ++j) {
      wide_store(acc_rows + r * acc_stride + j * kWide, acc[r][j]);
    }
  }
}

// add_value_chunks over all elements; padded_dim is a multiple of 16.
template <DType kDType, int kRows>
void add_values(const ValueRun<typename CacheType<kDType>::Element>& run, float* acc,
                int64_t padded_dim) {
  constexpr int kWidth = register_tiles<kRows>();
  int64_t at = 0;
  if constexpr (kWidth >= 4) {
    for (; at + 4 * kWide <= padded_dim; at += 4 * kWide) {
      add_value_chunks<kDType, kRows, 4>(run, at, acc + at, padded_dim);
    }
  }
  if constexpr (kWidth >= 2) {
    for (; at + 2 * kWide <= padded_dim; at += 2 * kWide) {
      add_value_chunks<kDType, kRows, 2>(run, at, acc + at, padded_dim);
    }
  }
  for (; at < padded_dim; at += kWide) {
    add_value_chunks<kDType, kRows, 1>(run, at, acc + at, padded_dim);
  }
}

template <DType kDType>
MR_INLINE float cache_value(const typename CacheType<kDType>::Element* p) {
  if constexpr (kDType == DType::kF16) {
    // Through a vector: the one conversion that every instruction set's V16 has.
    uint16_t lanes[16] = {*p};
    float values[16];
    store(values, load_f16(lanes));
    return values[0];
  } else if constexpr (kDType == DType::kBF16) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(*p) << 16);
  } else {
    return static_cast<float>(*p);
  }
}

// Softmax is made in three passes over a batch, so that its tiles, which follow from each other
// only through the running maximum, overlap. First: scales and masks the scores of a tile in
// place; lane r of the result is row r's largest.
template <bool kScaled, int kRows>
MR_INLINE V16 scale_scores(float scale, const float* k_scale, const int* counts, float* scores) {
  V16 s[kRows];
  const V16 factor = set1(scale);
  MR_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    V16 score = load(scores + r * 16);
    if constexpr (kScaled) score = score * load(k_scale);
    score = score * factor;
    if (counts[r] < 16) score = select(mask_first(counts[r]), score, set1(kNegativeInfinity));
    store(scores + r * 16, score);
    s[r] = score;
  }
  return reduce_rows<kRows>(s, MaxLanes{});
}

// Third: turns the scaled scores into weights p, in place, and adds them to the slot sums.
template <bool kScaled, int kRows>
MR_INLINE void weigh_tile(const float* m, const float* c, const float* v_scale, const int* counts,
                          float* scores, float* slots) {
  MR_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    V16 p = exp(load(scores + r * 16) - set1(m[r]));
    if (counts[r] < 16) p = select(mask_first(counts[r]), p, zero());
    store(slots + r * 16, fma(load(slots + r * 16), set1(c[r]), p));
    if constexpr (kScaled) p = p * load(v_scale);
    store(scores + r * 16, p);
  }
}

}  // namespace
}  // namespace millrace
