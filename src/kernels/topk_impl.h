// The k best of a stream of scores, without an array of all of them. For files of one instruction
// set only, like simd.h.
//
// Candidates (a score's key and its position) are kept in ascending order of positions. When the
// buffer is full it is cut to the k best, in the same order, and the k-th best becomes the
// threshold: what comes later must be above it, because at the same score the lower position wins.
// The cut finds the k-th best key by samples: between a key of a sample that is a little above the
// rank and one that is a little below lie about a quarter of all keys, which are sampled again
// (Floyd and Rivest, "Expected time bounds for selection", 1975).
#pragma once

#include <cstddef>

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
  int32_t* shared = nullptr;      // [2][capacity + 16]; free between calls
};

// An empty choice in topk_candidates_bytes(k) of its own and topk_shared_bytes(k) shared ones.
TopK make_topk(int k, std::byte* candidates, std::byte* shared) {
  TopK best;
  best.k = k;
  best.capacity = static_cast<int>(topk_capacity(k));
  best.keys = reinterpret_cast<int32_t*>(candidates);
  best.positions = best.keys + best.capacity + 16;
  best.shared = reinterpret_cast<int32_t*>(shared);
  return best;
}

// Integers in the order of the scores: -0 = +0, NaN = -inf.
MR_INLINE I16 keys_of(V16 score) {
  const I16 bits = as_int(max(score + zero(), set1(-__builtin_inff())));
  return select(greater(zero_int(), bits), xor_bits(bits, set1_int(INT32_MAX)), bits);
}

MR_INLINE uint32_t first_lanes_mask(int64_t n) { return n >= 16 ? 0xffffu : (1u << n) - 1u; }

// Keys of a sample; a multiple of 16.
inline constexpr int kTopKSample = 64;

// A sample of keys, and for each of them how many of the sample are greater.
struct KeySample {
  static constexpr int kVectors = kTopKSample / 16;
  I16 keys[kVectors];
  I16 greater_keys[kVectors];
};

KeySample sample_of(const int32_t (&keys)[kTopKSample]) {
  KeySample sample;
  for (int v = 0; v < KeySample::kVectors; ++v) {
    sample.keys[v] = load_int(keys + 16 * v);
    sample.greater_keys[v] = zero_int();
  }
  for (const int32_t key : keys) {
    const I16 other = set1_int(key);
    for (int v = 0; v < KeySample::kVectors; ++v) {
      const I16 count = sample.greater_keys[v];
      sample.greater_keys[v] =
          select(greater(other, sample.keys[v]), add(count, set1_int(1)), count);
    }
  }
  return sample;
}

// The key of rank `rank`, 0 for the highest: the lowest of those that at most `rank` are above.
int32_t key_of_rank(const KeySample& sample, int rank) {
  // There is a maximum over lanes only; ~x turns the order round.
  I16 highest = set1_int(INT32_MIN);
  for (int v = 0; v < KeySample::kVectors; ++v) {
    const I16 flipped = xor_bits(sample.keys[v], set1_int(-1));
    const M16 below = greater(sample.greater_keys[v], set1_int(rank));
    highest = max(highest, select(below, set1_int(INT32_MIN), flipped));
  }
  return ~reduce_max(highest);
}

// Both ends included; no key is INT32_MIN.
struct KeyRange {
  int32_t low = INT32_MIN + 1;
  int32_t high = INT32_MAX;
};

// A part of `range`, in which n keys are, that likely holds their `need`-th highest. With a margin
// of kTopKSample / 8, at least two standard deviations, it holds about a quarter of them; without
// one, a single key.
KeyRange likely_range(const int32_t* keys, int n, int need, KeyRange range, int margin) {
  int32_t some[kTopKSample];
  for (int i = 0; i < kTopKSample; ++i) some[i] = keys[int64_t{i} * n / kTopKSample];
  const KeySample sample = sample_of(some);
  const int rank = static_cast<int>((int64_t{need} * kTopKSample - 1) / n);
  if (rank + margin < kTopKSample) range.low = key_of_rank(sample, rank + margin);
  if (rank >= margin) range.high = key_of_rank(sample, rank - margin);
  return range;
}

// How many keys are above a range, and how many in it.
struct KeyCounts {
  int above = 0;
  int within = 0;
};

// The keys in a range go side by side to `to`, with up to 16 of no meaning behind them.
KeyCounts keys_within(const int32_t* keys, int n, KeyRange range, int32_t* to) {
  const I16 below = set1_int(range.low - 1);
  const I16 high = set1_int(range.high);
  KeyCounts counts;
  for (int i = 0; i < n; i += 16) {
    const I16 v = load_int(keys + i);
    const uint32_t lanes = first_lanes_mask(n - i);
    const uint32_t above = bits_of(greater(v, high)) & lanes;
    const uint32_t within = bits_of(greater(v, below)) & lanes & ~above;
    compress_store(to + counts.within, v, within);
    counts.above += __builtin_popcount(above);
    counts.within += __builtin_popcount(within);
  }
  return counts;
}

// The k-th best key, how many candidates equal it, and how many of these belong to the k best.
struct TopKCut {
  int32_t key;
  int equal;
  int ties;
};

// The `need`-th highest of n <= kTopKSample keys.
TopKCut cut_few(const int32_t* keys, int n, int need) {
  int32_t all[kTopKSample];
  for (int32_t& key : all) key = INT32_MIN;
  __builtin_memcpy(all, keys, static_cast<size_t>(n) * sizeof(int32_t));
  const KeySample sample = sample_of(all);
  TopKCut cut{key_of_rank(sample, need - 1), 0, need};
  for (const I16& v : sample.keys) {
    const int above = __builtin_popcount(bits_of(greater(v, set1_int(cut.key))));
    cut.ties -= above;
    cut.equal += __builtin_popcount(bits_of(greater(v, set1_int(cut.key - 1)))) - above;
  }
  return cut;
}

TopKCut find_cut(const TopK& best) {
  const int32_t* keys = best.keys;
  int n = best.count;
  int need = best.k;
  KeyRange range;  // of `keys`
  int round = 0;
  // Samples can mislead, and do not part many equal keys. After a round that did not halve the keys
  // one key of the sample is tried, because many may equal it, and after that rounds halve the
  // range.
  int failures = 0;
  while (n > kTopKSample && range.low < range.high) {
    KeyRange part = range;
    if (failures < 2) {
      part = likely_range(keys, n, need, range, failures == 0 ? kTopKSample / 8 : 0);
    } else {
      part.high = static_cast<int32_t>((int64_t{range.low} + range.high) >> 1);
    }
    int32_t* to = best.shared + (round++ % 2) * (best.capacity + 16);
    KeyCounts counts = keys_within(keys, n, part, to);
    if (need > counts.above && need <= counts.above + counts.within) {
      need -= counts.above;
      range = part;
    } else {
      if (need <= counts.above) {
        range.low = part.high + 1;
      } else {
        need -= counts.above + counts.within;
        range.high = part.low - 1;
      }
      counts = keys_within(keys, n, range, to);
    }
    failures = counts.within > n / 2 ? failures + 1 : 0;
    keys = to;
    n = counts.within;
  }
  return n > kTopKSample ? TopKCut{range.low, n, need} : cut_few(keys, n, need);
}

// Keeps the candidates above a cut's key and the first `ties` that equal it, in their order.
template <bool kAllTies>
void keep_best(TopK& best, const TopKCut& cut) {
  const I16 key = set1_int(cut.key);
  const I16 below = set1_int(cut.key - 1);
  int ties = cut.ties;
  int kept = 0;
  for (int i = 0; i < best.count; i += 16) {
    const I16 v = load_int(best.keys + i);
    const I16 positions = load_int(best.positions + i);
    uint32_t chosen = bits_of(greater(v, below)) & first_lanes_mask(best.count - i);
    if constexpr (!kAllTies) {
      const uint32_t above = bits_of(greater(v, key)) & chosen;
      uint32_t equal = chosen & ~above;
      while (__builtin_popcount(equal) > ties) equal &= ~(0x80000000u >> __builtin_clz(equal));
      ties -= __builtin_popcount(equal);
      chosen = above | equal;
    }
    // Never ahead of the reading, so the whole vectors that are written hurt nothing.
    compress_store(best.keys + kept, v, chosen);
    compress_store(best.positions + kept, positions, chosen);
    kept += __builtin_popcount(chosen);
  }
  best.count = kept;
  best.threshold = cut.key;
}

// Cuts more than k candidates to the k best, in their order.
[[gnu::noinline]] void cut_topk(TopK& best) {
  const TopKCut cut = find_cut(best);
  if (cut.equal == cut.ties) return keep_best<true>(best, cut);
  keep_best<false>(best, cut);
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
