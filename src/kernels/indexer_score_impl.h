// Scores of the indexer: 16 positions in lanes, a block of heads in registers. For files of one
// instruction set only, like simd.h.
//
// A token's queries are packed into the order of the loops: [block of heads][4 elements (int8)
// or 1 element (float)][head of the block]. With int8 keys the sums start at -128 x the sum of the
// query's codes where the dot product takes codes + 128 as they are stored; all of it is exact.
#pragma once

#include "kernels/cache_rows_impl.h"
#include "kernels/indexer_layout.h"
#include "kernels/simd_rows.h"

namespace millrace {
namespace {

// Heads whose sums are in registers at once, and groups of 16 positions that share a broadcast.
#if defined(__AVX512F__)
inline constexpr int kIndexHeads = 8;
inline constexpr int kIndexGroups = 2;
#else
inline constexpr int kIndexHeads = 4;
inline constexpr int kIndexGroups = 1;
#endif
// Positions between those that are computed and those whose keys are asked for.
inline constexpr int64_t kIndexAhead = 2 * 16 * kIndexGroups;
static_assert(kIndexHeadPad % kIndexHeads == 0);

// Whether dot4 of stored codes (0..255) is as fast as one of signed codes.
#if defined(__AVX512VNNI__) || !defined(__AVX2__)
inline constexpr bool kUnsignedKeys = true;
#else
inline constexpr bool kUnsignedKeys = false;
#endif

// One token's packed queries.
struct IndexQuery {
  int num_heads = 0;
  int dim = 0;
  float scale = 0;                // D^-0.5; float keys only
  std::byte* values = nullptr;    // int8 codes or floats; those of padded heads are anything
  int32_t* starts = nullptr;      // [padded heads]: of the integer sums
  float* coefficients = nullptr;  // [padded heads]: what relu is multiplied by
};

// 16 positions' keys and, with int8, scales.
struct IndexGroup {
  const std::byte* keys = nullptr;
  const float* scales = nullptr;
};

// Where a row's packed queries are.
IndexQuery query_of_row(const IndexerArgs& args, int64_t row) {
  const IndexQueryLayout layout =
      IndexQueryLayout::of(args.num_heads, args.cache.index_dim, args.cache.index_dtype);
  std::byte* memory = args.queries + row * layout.bytes;
  IndexQuery query;
  query.num_heads = args.num_heads;
  query.dim = args.cache.index_dim;
  query.scale = index_score_scale(query.dim);
  query.values = memory;
  query.starts = reinterpret_cast<int32_t*>(memory + layout.starts);
  query.coefficients = reinterpret_cast<float*>(memory + layout.coefficients);
  return query;
}

void pack_head_int8(const float* q, float weight, int head, const IndexQuery& query) {
  const float scale = int8_scale(q, query.dim);
  const Int8Codes int8_codes(scale);
  const int block = head / kIndexHeads;
  std::byte* to = query.values + int64_t{block} * kIndexHeads * query.dim + head % kIndexHeads * 4;
  I16 sum = zero_int();
  for (int d = 0; d < query.dim; d += 16) {
    const int count = query.dim - d < 16 ? query.dim - d : 16;
    const I16 codes = int8_codes.of(q + d, count);
    sum = add(sum, codes);
    uint8_t chunk[16];
    store_low8(chunk, codes);
    for (int i = 0; i < count; i += 4) {
      __builtin_memcpy(to + int64_t{d + i} * kIndexHeads, chunk + i, 4);
    }
  }
  query.starts[head] = kUnsignedKeys ? -128 * reduce_add(sum) : 0;
  query.coefficients[head] = (weight * index_score_scale(query.dim)) * scale;
}

void pack_head_float(const float* q, float weight, int head, const IndexQuery& query) {
  const int block = head / kIndexHeads;
  float* to = reinterpret_cast<float*>(query.values) + int64_t{block} * kIndexHeads * query.dim +
              head % kIndexHeads;
  for (int64_t d = 0; d < query.dim; ++d) to[d * kIndexHeads] = q[d];
  query.coefficients[head] = weight;
}

void pack_queries(const IndexerArgs& args, const IndexPack& pack, std::byte*) {
  const bool is_int8 = args.cache.index_dtype == DType::kI8;
  for (int64_t row = pack.row_begin; row < pack.row_begin + pack.num_rows; ++row) {
    const IndexQuery query = query_of_row(args, row);
    const float* q = args.q + row * args.q_stride;
    const float* weights = args.weights + row * args.weights_stride;
    for (int head = pack.head_begin; head < pack.head_end; ++head) {
      const auto pack_head = is_int8 ? pack_head_int8 : pack_head_float;
      pack_head(q + int64_t{head} * query.dim, weights[head], head, query);
    }
  }
}

// Asks for 8 x dim bytes at `ahead` meanwhile, a line in every second round: with cold caches
// faster than more at a time.
template <int kGroups>
MR_INLINE void add_int8_block(const IndexQuery& query, int head, const std::byte* ahead,
                              const IndexGroup (&groups)[kGroups], V16 (&sums)[kGroups]) {
  I16 acc[kGroups][kIndexHeads];
  MR_UNROLL(8)
  for (int h = 0; h < kIndexHeads; ++h) {
    const I16 start = set1_int(query.starts[head + h]);
    MR_UNROLL(2)
    for (int g = 0; g < kGroups; ++g) acc[g][h] = start;
  }
  const std::byte* q = query.values + int64_t{head} * query.dim;
  const std::byte* end = q + int64_t{kIndexHeads} * query.dim;
  const std::byte* stored[kGroups];
  MR_UNROLL(2)
  for (int g = 0; g < kGroups; ++g) stored[g] = groups[g].keys;
  for (int64_t at = 0; q < end; q += 4 * kIndexHeads, at += 64) {
    if (at % 128 == 0) prefetch_level2(ahead + at / 2);
    I16 keys[kGroups];
    MR_UNROLL(2)
    for (int g = 0; g < kGroups; ++g) {
      keys[g] = load_int(stored[g] + at);
      if constexpr (!kUnsignedKeys) {
        keys[g] = xor_bits(keys[g], set1_int(static_cast<int32_t>(0x80808080u)));
      }
    }
    MR_UNROLL(8)
    for (int h = 0; h < kIndexHeads; ++h) {
      const I16 codes = broadcast4(q + 4 * h);
      MR_UNROLL(2)
      for (int g = 0; g < kGroups; ++g) {
        if constexpr (kUnsignedKeys) {
          acc[g][h] = dot4<8>(acc[g][h], keys[g], codes);
        } else {
          acc[g][h] = dot4_signed(acc[g][h], keys[g], codes);
        }
        keep_in_place(acc[g][h]);
      }
    }
  }
  MR_UNROLL(8)
  for (int h = 0; h < kIndexHeads; ++h) {
    if (head + h >= query.num_heads) break;
    const V16 coefficient = set1(query.coefficients[head + h]);
    MR_UNROLL(2)
    for (int g = 0; g < kGroups; ++g) {
      sums[g] = fma(coefficient, to_float(max(acc[g][h], zero_int())), sums[g]);
    }
  }
}

template <DType kDType, int kGroups>
MR_INLINE void add_float_block(const IndexQuery& query, int head,
                               const IndexGroup (&groups)[kGroups], V16 (&sums)[kGroups]) {
  V16 acc[kGroups][kIndexHeads];
  MR_UNROLL(8)
  for (int h = 0; h < kIndexHeads; ++h) {
    MR_UNROLL(2)
    for (int g = 0; g < kGroups; ++g) acc[g][h] = zero();
  }
  const float* q = reinterpret_cast<const float*>(query.values) + int64_t{head} * query.dim;
  for (int64_t d = 0; d < query.dim; ++d, q += kIndexHeads) {
    V16 keys[kGroups];
    MR_UNROLL(2)
    for (int g = 0; g < kGroups; ++g) {
      if constexpr (kDType == DType::kBF16) {
        keys[g] = load_bf16(reinterpret_cast<const uint16_t*>(groups[g].keys) + d * 16);
      } else {
        keys[g] = load(reinterpret_cast<const float*>(groups[g].keys) + d * 16);
      }
    }
    MR_UNROLL(8)
    for (int h = 0; h < kIndexHeads; ++h) {
      const V16 value = set1(q[h]);
      MR_UNROLL(2)
      for (int g = 0; g < kGroups; ++g) acc[g][h] = fma(value, keys[g], acc[g][h]);
    }
  }
  MR_UNROLL(8)
  for (int h = 0; h < kIndexHeads; ++h) {
    if (head + h >= query.num_heads) break;
    const V16 weight = set1(query.coefficients[head + h]);
    MR_UNROLL(2)
    for (int g = 0; g < kGroups; ++g) {
      // 0 > x ? 0 : x, so that a NaN stays.
      sums[g] = fma(weight, max(zero(), acc[g][h] * set1(query.scale)), sums[g]);
    }
  }
}

// Scores of one or two groups of 16 positions for one token, to scores[kGroups][16]. Asks for the
// keys of groups that come later, `ahead_bytes` each, while it computes: into the second-level
// cache, because the first has too few miss buffers.
template <DType kDType, int kGroups>
[[gnu::noinline]] void score_groups(const IndexQuery& query, const IndexGroup (&groups)[kGroups],
                                    const IndexGroup (&ahead)[kIndexGroups], int64_t ahead_bytes,
                                    float* scores) {
  V16 sums[kGroups];
  MR_UNROLL(2)
  for (int g = 0; g < kGroups; ++g) sums[g] = zero();
  for (int head = 0; head < query.num_heads; head += kIndexHeads) {
    const int block = head / kIndexHeads;
    if constexpr (kDType == DType::kI8) {
      // Half a group ahead in each of the first blocks of heads (25 heads and more ask for all that
      // is needed); later ones ask for what is there already.
      const bool asks = ahead_bytes > 0 && block < 2 * kIndexGroups;
      const std::byte* half =
          asks ? ahead[block / 2].keys + block % 2 * (ahead_bytes / 2) : groups[0].keys;
      add_int8_block<kGroups>(query, head, half, groups, sums);
    } else {
      const int64_t blocks = (query.num_heads + kIndexHeads - 1) / kIndexHeads;
      const int64_t share = (ahead_bytes / blocks + 63) / 64 * 64;
      const int64_t end = (block + 1) * share < ahead_bytes ? (block + 1) * share : ahead_bytes;
      for (int64_t at = block * share; at < end; at += 64) {
        for (const IndexGroup& group : ahead) prefetch_level2(group.keys + at);
      }
      add_float_block<kDType, kGroups>(query, head, groups, sums);
    }
  }
  MR_UNROLL(2)
  for (int g = 0; g < kGroups; ++g) {
    if constexpr (kDType == DType::kI8) sums[g] = sums[g] * load(groups[g].scales);
    store(scores + 16 * g, sums[g]);
  }
}

// Positions [begin, end[token]) of a sequence for some tokens.
struct IndexRange {
  IndexQuery queries[kIndexTokens];
  int num_tokens = 0;
  const int32_t* block_table = nullptr;
  int64_t begin = 0;
  int64_t end[kIndexTokens] = {};  // ascending
};

// The groups of 16 positions of [begin, end), ascending; after the last, the last again. Blocks
// hold a multiple of 16 positions.
class IndexGroups {
 public:
  MR_INLINE IndexGroups(const MlaLayerView& cache, const int32_t* block_table, int64_t begin,
                        int64_t end)
      : cache_(cache), block_table_(block_table) {
    const int64_t last = (end - 1) / 16 * 16;
    const int64_t first = begin < last ? begin : last;
    left_ = (last - first) / 16;
    block_ = first / cache.block_size;
    offset_ = static_cast<int>(first % cache.block_size);
  }

  MR_INLINE IndexGroup next() {
    const int64_t block = block_table_[block_];
    const bool scaled = cache_.index_dtype == DType::kI8;
    const IndexGroup group = {cache_.index_group(block, offset_),
                              scaled ? cache_.scales_of_index_group(block, offset_) : nullptr};
    if (left_ > 0) {
      --left_;
      offset_ += 16;
      if (offset_ == cache_.block_size) {
        offset_ = 0;
        ++block_;
      }
    }
    return group;
  }

 private:
  const MlaLayerView& cache_;
  const int32_t* block_table_;
  int64_t left_ = 0;  // groups after the next one
  int64_t block_ = 0;
  int offset_ = 0;
};

// Asks for the keys of the first positions, which walk_scores loads before any that it asked for.
void prefetch_first_keys(const MlaLayerView& cache, const int32_t* block_table, int64_t begin,
                         int64_t end) {
  const int64_t element = size_of(cache.index_dtype);
  const int64_t stop = begin + kIndexAhead < end ? begin + kIndexAhead : end;
  IndexGroups groups(cache, block_table, begin, end);
  for (int64_t position = begin; position < stop; position += 16) {
    const IndexGroup group = groups.next();
    const int64_t bytes = 16 * element * cache.index_dim;
    for (int64_t i = 0; i < bytes; i += 64) prefetch_level2(group.keys + i);
    if (group.scales != nullptr) prefetch_level2(group.scales);
  }
}

// Calls sink(token, position, scores, count) for every 16 positions from `position` that a token
// sees, `count` of them (1 to 16), ascending in positions.
template <DType kDType, typename Sink>
void walk_scores(const MlaLayerView& cache, const IndexRange& range, Sink& sink) {
  constexpr int64_t kElement = kDType == DType::kI8 ? 1 : kDType == DType::kBF16 ? 2 : 4;
  const int64_t end = range.end[range.num_tokens - 1];
  IndexGroups next_groups(cache, range.block_table, range.begin, end);
  IndexGroups next_ahead(cache, range.block_table, range.begin + kIndexAhead, end);
  IndexGroup groups[kIndexGroups];
  IndexGroup ahead[kIndexGroups];
  float scores[kIndexGroups * 16];
  for (int64_t position = range.begin; position < end; position += 16 * kIndexGroups) {
    for (IndexGroup& group : groups) group = next_groups.next();
    for (IndexGroup& group : ahead) group = next_ahead.next();
    const bool last = position + kIndexAhead >= end;
    int64_t ahead_bytes = last ? 0 : 16 * kElement * cache.index_dim;
    if (kDType == DType::kI8 && !last) {
      for (const IndexGroup& group : ahead) prefetch_level2(group.scales);
    }
    for (int token = 0; token < range.num_tokens; ++token) {
      const int64_t visible = range.end[token] - position;
      if (visible <= 0) continue;
      if (visible > 16) {
        score_groups<kDType, kIndexGroups>(range.queries[token], groups, ahead, ahead_bytes,
                                           scores);
      } else {
        const IndexGroup first[1] = {groups[0]};
        score_groups<kDType, 1>(range.queries[token], first, ahead, ahead_bytes, scores);
      }
      ahead_bytes = 0;
      for (int g = 0; g < kIndexGroups && visible > 16 * g; ++g) {
        const int64_t count = visible - 16 * g;
        sink(token, position + 16 * g, scores + 16 * g, static_cast<int>(count < 16 ? count : 16));
      }
    }
  }
}

template <typename Sink>
void walk_scores(const MlaLayerView& cache, const IndexRange& range, Sink& sink) {
  if (cache.index_dtype == DType::kI8) return walk_scores<DType::kI8>(cache, range, sink);
  if (cache.index_dtype == DType::kBF16) return walk_scores<DType::kBF16>(cache, range, sink);
  walk_scores<DType::kF32>(cache, range, sink);
}

}  // namespace
}  // namespace millrace
