// The indexer over V16, compiled once per instruction set by indexer_<isa>.cc.
// reference_indexer.h is its plain form.
#pragma once

#include "kernels/indexer.h"
#include "kernels/indexer_score_impl.h"
#include "kernels/topk_impl.h"

namespace millrace {
namespace {

alignas(64) constexpr int32_t kLaneNumbers[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                  8, 9, 10, 11, 12, 13, 14, 15};

// Where a token's selection goes.
struct SelectionRow {
  int32_t* positions;
  int32_t* leaf_begin;  // [17]
};
MR_INLINE SelectionRow selection_row(const IndexerArgs& args, int64_t row) {
  return {args.positions + row * args.selection_stride, args.leaf_begin + row * 17};
}

// Selects all of the first `visible` positions.
void select_all(int64_t visible, const SelectionRow& to) {
  int32_t count = 0;
  for (int leaf = 0; leaf < 16; ++leaf) {
    to.leaf_begin[leaf] = count;
    for (int64_t group = int64_t{leaf} * 16; group < visible; group += 256) {
      const int64_t end = group + 16 < visible ? group + 16 : visible;
      for (int64_t p = group; p < end; ++p) to.positions[count++] = static_cast<int32_t>(p);
    }
  }
  to.leaf_begin[16] = count;
}

// Selects `count` positions, given in any order, of the first `visible`: marks them in `marks`
// (whole groups of 64) and reads the marks leaf by leaf. For short histories, where a counting sort
// takes longest.
void select_marked(const int32_t* positions, int count, int64_t visible, uint8_t* marks,
                   const SelectionRow& to) {
  for (int64_t p = 0; p < visible; p += 64) {
    store_int(reinterpret_cast<int32_t*>(marks + p), zero_int());
  }
  for (int i = 0; i < count; ++i) marks[positions[i]] = 1;
  int32_t selected = 0;
  for (int leaf = 0; leaf < 16; ++leaf) {
    to.leaf_begin[leaf] = selected;
    for (int64_t group = int64_t{leaf} * 16; group < visible; group += 256) {
      const uint32_t chosen = nonzero_bytes(marks + group);
      const I16 numbers = add(set1_int(static_cast<int32_t>(group)), load_int(kLaneNumbers));
      if (selected + 16 <= count) {
        compress_store(to.positions + selected, numbers, chosen);
      } else {
        // The row may end with the last position.
        int32_t last[16];
        compress_store(last, numbers, chosen);
        __builtin_memcpy(to.positions + selected, last,
                         static_cast<size_t>(__builtin_popcount(chosen)) * sizeof(int32_t));
      }
      selected += __builtin_popcount(chosen);
    }
  }
  to.leaf_begin[16] = selected;
}

// Selects `count` positions, given in ascending order: a counting sort by leaf. In four runs side
// by side, because neighbours are often of one leaf, and each waits for its counter.
void select_positions(const int32_t* positions, int count, const SelectionRow& to) {
  constexpr int kRuns = 4;
  const int length = count / kRuns;
  int32_t next[kRuns][16] = {};
  const auto leaf_of = [](int32_t position) { return position >> 4 & 15; };
  for (int i = 0; i < length; ++i) {
    for (int run = 0; run < kRuns; ++run) ++next[run][leaf_of(positions[run * length + i])];
  }
  for (int i = kRuns * length; i < count; ++i) ++next[kRuns - 1][leaf_of(positions[i])];
  int32_t begin = 0;
  for (int leaf = 0; leaf < 16; ++leaf) {
    to.leaf_begin[leaf] = begin;
    for (auto& run : next) {
      const int32_t size = run[leaf];
      run[leaf] = begin;
      begin += size;
    }
  }
  to.leaf_begin[16] = begin;
  for (int i = 0; i < length; ++i) {
    for (int run = 0; run < kRuns; ++run) {
      const int32_t position = positions[run * length + i];
      to.positions[next[run][leaf_of(position)]++] = position;
    }
  }
  for (int i = kRuns * length; i < count; ++i) {
    to.positions[next[kRuns - 1][leaf_of(positions[i])]++] = positions[i];
  }
}

// Positions for each chosen one up to which marks are faster.
inline constexpr int kMarkedPerKey = 4;

// Selects what `best` has chosen of the first `visible` positions; its shared memory is free then.
void select_best(const TopK& best, int64_t visible, const SelectionRow& to) {
  // A byte each: the shared memory has room for more than 24 k.
  if (visible <= int64_t{kMarkedPerKey} * best.k) {
    select_marked(best.positions, best.count, visible, reinterpret_cast<uint8_t*>(best.shared), to);
  } else {
    select_positions(best.positions, best.count, to);
  }
}

// A part's candidates in the workspace, at most index_part_candidates(k), ascending in positions.
struct IndexCandidates {
  int32_t count;
  int32_t bound;  // k of them are not lower; INT32_MIN if there may be fewer than k
};
static_assert(sizeof(IndexCandidates) <= 64);
MR_INLINE IndexCandidates candidates_of(const std::byte* part) {
  IndexCandidates head;
  __builtin_memcpy(&head, part, sizeof head);
  return head;
}
MR_INLINE int32_t* candidate_keys(std::byte* part) { return reinterpret_cast<int32_t*>(part + 64); }

// Asks for a part's candidates, which most likely are in another core's cache.
void prefetch_candidates(std::byte* part, int64_t topk) {
  const IndexCandidates head = candidates_of(part);
  const int32_t* keys = candidate_keys(part);
  for (int j = 0; j < head.count; j += 16) {
    prefetch_level2(keys + j);
    prefetch_level2(keys + index_part_candidates(topk) + j);
  }
}

void write_candidates(const TopK& best, std::byte* part) {
  const IndexCandidates head{best.count, best.threshold};
  __builtin_memcpy(part, &head, sizeof head);
  const auto bytes = static_cast<size_t>(best.count) * sizeof(int32_t);
  __builtin_memcpy(candidate_keys(part), best.keys, bytes);
  __builtin_memcpy(candidate_keys(part) + index_part_candidates(best.k), best.positions, bytes);
}

struct TopKSink {
  TopK* tokens;

  MR_INLINE void operator()(int token, int64_t position, const float* scores, int count) {
    const I16 positions = add(set1_int(static_cast<int32_t>(position)), load_int(kLaneNumbers));
    push_topk(tokens[token], keys_of(load(scores)), positions, first_lanes_mask(count));
  }
};

struct StoreSink {
  float* scores;
  int64_t stride;
  int64_t begin;

  void operator()(int token, int64_t position, const float* from, int count) {
    float* to = scores + token * stride + (position - begin);
    for (int i = 0; i < count; ++i) to[i] = from[i];
  }
};

// Tokens [first, num_tokens) of an item over its positions.
IndexRange range_of_item(const IndexerArgs& args, const IndexItem& item, int first) {
  const AttentionSequence& sequence = args.sequences[item.sequence];
  IndexRange range;
  range.num_tokens = item.num_tokens - first;
  range.block_table = sequence.block_table;
  range.begin = item.position_begin;
  const int64_t first_token = item.token_begin + first;
  for (int i = 0; i < range.num_tokens; ++i) {
    const int64_t visible = sequence.num_computed + first_token + i + 1;
    range.end[i] = visible < item.position_end ? visible : item.position_end;
    range.queries[i] = query_of_row(args, sequence.query_start + first_token + i);
  }
  // No further: the block table may end there.
  prefetch_first_keys(args.cache, range.block_table, range.begin, range.end[range.num_tokens - 1]);
  return range;
}

void run_item(const IndexerArgs& args, const IndexItem& item, std::byte* scratch) {
  const AttentionSequence& sequence = args.sequences[item.sequence];
  const bool is_part = item.workspace_offset >= 0;
  // Tokens that see no more than k positions come first, and need no scores.
  int first = 0;
  for (; first < item.num_tokens; ++first) {
    const int64_t token = item.token_begin + first;
    const int64_t visible = sequence.num_computed + token + 1;
    if (visible > args.topk) break;
    if (!is_part) select_all(visible, selection_row(args, sequence.query_start + token));
  }
  if (first == item.num_tokens) return;
  const IndexRange range = range_of_item(args, item, first);
  const IndexerScratchSizes sizes = IndexerScratchSizes::of(args.topk);
  TopK best[kIndexTokens];
  for (int i = 0; i < range.num_tokens; ++i) {
    best[i] = make_topk(args.topk, scratch + sizes.shared + i * sizes.candidates, scratch);
  }
  TopKSink sink{best};
  walk_scores(args.cache, range, sink);
  for (int i = 0; i < range.num_tokens; ++i) {
    finish_topk(best[i], is_part ? index_part_candidates(args.topk) : args.topk);
    if (is_part) {
      write_candidates(best[i], args.workspace + item.workspace_offset);
    } else {
      const int64_t row = sequence.query_start + item.token_begin + first + i;
      select_best(best[i], range.end[i], selection_row(args, row));
    }
  }
}

void score_item(const IndexerArgs& args, const IndexItem& item, float* scores, int64_t stride) {
  const IndexRange range = range_of_item(args, item, 0);
  StoreSink sink{scores, stride, item.position_begin};
  walk_scores(args.cache, range, sink);
}

void merge_parts(const IndexerArgs& args, const IndexMerge& merge, std::byte* scratch) {
  const AttentionSequence& sequence = args.sequences[merge.sequence];
  const int64_t visible = sequence.num_computed + merge.token + 1;
  const SelectionRow to = selection_row(args, sequence.query_start + merge.token);
  if (visible <= args.topk) return select_all(visible, to);
  TopK best = make_topk(args.topk, scratch + topk_shared_bytes(args.topk), scratch);
  std::byte* parts = args.workspace + merge.workspace_offset;
  const int64_t part_bytes = index_candidates_bytes(args.topk);
  // The k candidates of one part that are not below its bound are enough to leave out all that are
  // below the highest bound.
  for (int i = 0; i < merge.num_parts; ++i) {
    const IndexCandidates head = candidates_of(parts + i * part_bytes);
    if (head.bound > best.threshold + 1) best.threshold = head.bound - 1;
  }
  prefetch_candidates(parts, args.topk);
  for (int i = 0; i < merge.num_parts; ++i) {
    if (i + 1 < merge.num_parts) prefetch_candidates(parts + (i + 1) * part_bytes, args.topk);
    const IndexCandidates head = candidates_of(parts + i * part_bytes);
    const int32_t* keys = candidate_keys(parts + i * part_bytes);
    const int32_t* positions = keys + index_part_candidates(args.topk);
    int j = 0;
    for (; j + 16 <= head.count; j += 16) {
      push_topk(best, load_int(keys + j), load_int(positions + j), 0xffffu);
    }
    if (j == head.count) continue;
    int32_t last[2][16] = {};
    const auto bytes = static_cast<size_t>(head.count - j) * sizeof(int32_t);
    __builtin_memcpy(last[0], keys + j, bytes);
    __builtin_memcpy(last[1], positions + j, bytes);
    push_topk(best, load_int(last[0]), load_int(last[1]), first_lanes_mask(head.count - j));
  }
  finish_topk(best, best.k);
  select_best(best, visible, to);
}

void write_int8_key(const float* key, int dim, std::byte* group, float* scales, int lane) {
  const float scale = int8_scale(key, dim);
  scales[lane] = scale;
  const Int8Codes codes(scale);
  for (int d = 0; d < dim; d += 16) {
    const int count = dim - d < 16 ? dim - d : 16;
    uint8_t chunk[16];
    store_low8(chunk, add(codes.of(key + d, count), set1_int(128)));
    for (int i = 0; i < count; i += 4) {
      __builtin_memcpy(group + int64_t{d + i} * 16 + 4 * lane, chunk + i, 4);
    }
  }
}

void write_float_key(DType dtype, const float* key, int dim, std::byte* group, int lane) {
  if (dtype == DType::kF32) {
    float* to = reinterpret_cast<float*>(group) + lane;
    for (int64_t d = 0; d < dim; ++d) to[d * 16] = key[d];
    return;
  }
  uint16_t* to = reinterpret_cast<uint16_t*>(group) + lane;
  for (int64_t d = 0; d < dim; d += 16) {
    const int count = static_cast<int>(dim - d < 16 ? dim - d : 16);
    uint16_t chunk[16];
    store_bf16(chunk, load_first(key + d, count));
    for (int i = 0; i < count; ++i) to[(d + i) * 16] = chunk[i];
  }
}

void write_keys(const IndexWriteArgs& args, int64_t token_begin, int64_t token_end) {
  const MlaLayerView& cache = args.cache;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t slot = args.slot_mapping[token];
    if (slot < 0) continue;
    const int64_t block = slot / cache.block_size;
    const int lane = static_cast<int>(slot % cache.block_size) % 16;
    const int offset = static_cast<int>(slot % cache.block_size) - lane;
    const float* key = args.key + token * args.key_stride;
    std::byte* group = cache.index_group(block, offset);
    if (cache.index_dtype == DType::kI8) {
      write_int8_key(key, cache.index_dim, group, cache.scales_of_index_group(block, offset), lane);
    } else {
      write_float_key(cache.index_dtype, key, cache.index_dim, group, lane);
    }
  }
}

constexpr IndexerKernels make_indexer_kernels(const char* name) {
  return {name, pack_queries, run_item, merge_parts, write_keys, score_item};
}

}  // namespace
}  // namespace millrace
