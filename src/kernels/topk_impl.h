// The k best of a stream of scores, without an array of all of them. For files of one instruction
// set only, like simd.h.
//
// Candidates (a score's key and its position) are kept in ascending order of positions. When the
// buffer is full it is cut to the k best, in the same order, and the k-th best becomes the
// threshold: what comes later must be above it, because at the same score the lower position wins.
// The cut finds the k-th best key by histograms: of all keys between the lowest and the highest,
// then of those in the bucket where it lies, until a bucket is one key.
#pragma once

#include "kernels/topk.h"
#include "kernels/topk_compress.h"

namespace millrace {
namespace {

struct TopK {
  int k = 0;
  int capacity = 0;
  int count = 0;
  int32_t threshold = INT32_MIN;  // only greater keys come in; no key is INT32_MIN
  int32_t* keys = nullptr;        // [capacity + 16]
  int32_t* positions = nullptr;   // [capacity + 16]
  int32_t* bucket = nullptr;      // [capacity + 16]
  int32_t* histograms = nullptr;  // [2][kTopKBins]
};

// An empty choice in topk_candidates_bytes(k) of its own and topk_shared_bytes(k) shared ones.
TopK make_topk(int k, std::byte* candidates, std::byte* shared) {
  TopK best;
  best.k = k;
  best.capacity = static_cast<int>(topk_capacity(k));
  best.keys = reinterpret_cast<int32_t*>(candidates);
  best.positions = best.keys + best.capacity + 16;
  best.bucket = reinterpret_cast<int32_t*>(shared);
  best.histograms = best.bucket + best.capacity + 16;
  return best;
}

// Integers in the order of the scores: -0 = +0, NaN = -inf.
MR_INLINE I16 keys_of(V16 score) {
  const I16 bits = as_int(max(score + zero(), set1(-__builtin_inff())));
  return select(greater(zero_int(), bits), xor_bits(bits, set1_int(INT32_MAX)), bits);
}

MR_INLINE uint32_t first_lanes_mask(int64_t n) { return n >= 16 ? 0xffffu : (1u << n) - 1u; }

// Lowest and highest of n >= 1 keys.
struct KeyRange {
  int32_t low;
  int32_t high;
};
KeyRange range_of(const int32_t* keys, int n) {
  I16 low = set1_int(keys[0]);
  I16 high = low;
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const I16 v = load_int(keys + i);
    low = min(low, v);
    high = max(high, v);
  }
  if (i < n) {
    const I16 v = select(mask_first(n - i), load_int(keys + i), set1_int(keys[0]));
    low = min(low, v);
    high = max(high, v);
  }
  // There is a maximum over lanes only; ~x turns the order round.
  const I16 flipped = xor_bits(low, set1_int(-1));
  return {~reduce_max(flipped), reduce_max(high)};
}

// Counts keys by (key - low) >> shift, in two histograms: neighbours often share a bucket, and an
// addition to memory has to wait for the one before.
void count_keys(const int32_t* keys, int n, int32_t low, int shift, int32_t* histograms) {
  for (int i = 0; i < 2 * kTopKBins; i += 16) store_int(histograms + i, zero_int());
  int32_t* odd = histograms + kTopKBins;
  const auto base = static_cast<uint32_t>(low);
  int i = 0;
  for (; i + 2 <= n; i += 2) {
    ++histograms[(static_cast<uint32_t>(keys[i]) - base) >> shift];
    ++odd[(static_cast<uint32_t>(keys[i + 1]) - base) >> shift];
  }
  if (i < n) ++histograms[(static_cast<uint32_t>(keys[i]) - base) >> shift];
}

// The bucket of the `need`-th highest key; `need` becomes its rank within the bucket.
int find_bucket(const int32_t* histograms, int& need) {
  for (int first = kTopKBins - 16;; first -= 16) {
    const I16 counts = add(load_int(histograms + first), load_int(histograms + kTopKBins + first));
    const int sum = reduce_add(counts);
    if (sum < need) {
      need -= sum;
      continue;
    }
    int32_t lanes[16];
    store_int(lanes, counts);
    int lane = 15;
    while (lanes[lane] < need) need -= lanes[lane--];
    return first + lane;
  }
}

// The keys in [low, high] side by side in `to` (which may be `keys`); their number.
int narrow_keys(const int32_t* keys, int n, KeyRange range, int32_t* to) {
  const I16 below = set1_int(range.low - 1);  // no key is INT32_MIN
  const I16 high = set1_int(range.high);
  int count = 0;
  for (int i = 0; i < n; i += 16) {
    const I16 v = load_int(keys + i);
    const uint32_t chosen =
        bits_of(greater(v, below)) & ~bits_of(greater(v, high)) & first_lanes_mask(n - i);
    compress_store(to + count, v, chosen);
    count += __builtin_popcount(chosen);
  }
  return count;
}

// The k-th best key, and how many that equal it belong to the k best.
struct TopKCut {
  int32_t key;
  int ties;
};
TopKCut find_cut(const TopK& best) {
  const int32_t* keys = best.keys;
  int n = best.count;
  int need = best.k;
  while (true) {
    const KeyRange range = range_of(keys, n);
    const uint32_t span = static_cast<uint32_t>(range.high) - static_cast<uint32_t>(range.low);
    if (span == 0) return {range.low, need};
    constexpr int kBinBits = 11;
    static_assert(1 << kBinBits == kTopKBins);
    const int shift = span < kTopKBins ? 0 : 32 - __builtin_clz(span) - kBinBits;
    count_keys(keys, n, range.low, shift, best.histograms);
    const int bucket = find_bucket(best.histograms, need);
    const int64_t first = range.low + (int64_t{bucket} << shift);
    if (shift == 0) return {static_cast<int32_t>(first), need};
    const int64_t last = first + (int64_t{1} << shift) - 1;
    const int32_t high = last < range.high ? static_cast<int32_t>(last) : range.high;
    n = narrow_keys(keys, n, {static_cast<int32_t>(first), high}, best.bucket);
    keys = best.bucket;
  }
}

// Cuts more than k candidates to the k best, in their order; of equal ones the first stay.
[[gnu::noinline]] void cut_topk(TopK& best) {
  const TopKCut cut = find_cut(best);
  const I16 key = set1_int(cut.key);
  const I16 below = set1_int(cut.key - 1);
  int ties = cut.ties;
  int kept = 0;
  for (int i = 0; i < best.count; i += 16) {
    const I16 v = load_int(best.keys + i);
    const I16 positions = load_int(best.positions + i);
    const uint32_t lanes = first_lanes_mask(best.count - i);
    const uint32_t above = bits_of(greater(v, key)) & lanes;
    uint32_t equal = bits_of(greater(v, below)) & lanes & ~above;
    while (__builtin_popcount(equal) > ties) equal &= ~(0x80000000u >> __builtin_clz(equal));
    ties -= __builtin_popcount(equal);
    // Never ahead of the reading, so the whole vectors that are written hurt nothing.
    compress_store(best.keys + kept, v, above | equal);
    compress_store(best.positions + kept, positions, above | equal);
    kept += __builtin_popcount(above | equal);
  }
  best.count = kept;
  best.threshold = cut.key;
}

// Offers up to 16 candidates, the lanes of `lanes`, at positions above all those offered before.
MR_INLINE void push_topk(TopK& best, I16 keys, I16 positions, uint32_t lanes) {
  uint32_t chosen = bits_of(greater(keys, set1_int(best.threshold))) & lanes;
  if (chosen == 0) return;
  if (best.count + 16 > best.capacity) {
    cut_topk(best);
    chosen = bits_of(greater(keys, set1_int(best.threshold))) & lanes;
  }
  compress_store(best.keys + best.count, keys, chosen);
  compress_store(best.positions + best.count, positions, chosen);
  best.count += __builtin_popcount(chosen);
}

// The final cut, for those who take up to `most` >= k candidates.
MR_INLINE void finish_topk(TopK& best, int64_t most) {
  if (best.count > most) cut_topk(best);
}

}  // namespace
}  // namespace millrace
