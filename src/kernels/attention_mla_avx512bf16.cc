// Latent attention over bf16 rows by bf16 dot products: the numeric class bf16.
//
// One step takes two products: acc + second * second' and then + first * first', in the order and
// with the rounding of the instruction (denormals count as zero). Of scores a pair is two elements
// of a row, whose width is even, and of the query, rounded to bf16. Of values a pair is two entries
// of a tile's list (one and zero at an odd end) and their weights, rounded to bf16. All else is
// fp32, as in the numeric class f32.
//
// An expanded tile is [blocks of 16 elements of the latent][8 pairs of entries][16 elements] for
// the values and [lines of 32 elements][16 entries][16 pairs of elements] for the scores.
#include "kernels/attention_mla_impl.h"

namespace millrace {
namespace {

// Elements of a line of a row, as many as one register holds.
constexpr int kLine = 32;

MR_INLINE V16 dot_broadcast(V16 acc, V16 a, const float* pair) {
  // The form with an operand in memory: a broadcast of its own would take a slot of the dot
  // products.
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(a.v), "m"(*pair));
  return acc;
}

// first in the low halves, second in the high ones.
MR_INLINE I16 pairs_of(V16 first, V16 second) {
  return or_bits(bf16_bits(first), shift_left<16>(bf16_bits(second)));
}

// Brings the rows of a tile together, line by line, and pairs of its entries, and asks for the rows
// of the next tile meanwhile. The score loop calls step() so that all of it hides behind its
// arithmetic.
class PairExpander {
 public:
  static constexpr int kBlock = kSquare / 2;

  explicit PairExpander(const MlaExpansion& at) : at_(at) {}

  // Whether there are 16 rows, and each line of each is whole.
  MR_INLINE static bool is_whole(const MlaExpansion& at) {
    return at.tile.count == 16 && at.latent % kLine == 0 && at.width % kLine == 0;
  }

  MR_INLINE void begin() const {
    for (int i = 0; i < 16; ++i) step<false>(0, i);
  }

  // The i-th of 16 parts of a line's work.
  template <bool kWhole>
  MR_INLINE void step(int line, int i) const {
    if (i < at_.next.count) prefetch_tile(at_.next.rows[i] + line * kCacheLine);
    if (i % 2 != 0) return;
    const I16 first = load_line<kWhole>(line, i);
    const I16 second = load_line<kWhole>(line, i + 1);
    float* rows = at_.rows + line * kSquare + i * 16;
    store_int(rows, first);
    store_int(rows + 16, second);
    const int left = at_.latent - line * kLine;
    if (left <= 0) return;
    float* values = at_.values + 2 * line * kBlock + i * 8;
    store_int(values, {_mm512_permutex2var_epi16(first.v, in_turns(0), second.v)});
    store_int(values + kBlock, {_mm512_permutex2var_epi16(first.v, in_turns(16), second.v)});
  }

 private:
  template <bool kWhole>
  MR_INLINE I16 load_line(int line, int entry) const {
    if constexpr (!kWhole) {
      const int left = at_.width - line * kLine;
      if (entry >= at_.tile.count) return zero_int();
      if (left < kLine) {
        const __mmask32 mask = (__mmask32{1} << left) - 1;
        return {_mm512_maskz_loadu_epi16(mask, at_.tile.rows[entry] + line * kCacheLine)};
      }
    }
    return load_int(at_.tile.rows[entry] + line * kCacheLine);
  }

  // Indices of elements begin, begin + 1, ... of two registers in turns.
  MR_INLINE static __m512i in_turns(int begin) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i first = _mm512_add_epi32(lanes, _mm512_set1_epi32(begin));
    return _mm512_or_si512(first,
                           _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(32)), 16));
  }

  const MlaExpansion& at_;
};

// Scores of the first kEntries entries. Line l + 1 is expanded while line l is used.
template <int kEntries, bool kWhole, typename Expand>
void score_lines(const MlaScores& at, const Expand& expand) {
  V16 acc[kEntries];
  MR_UNROLL(16)
  for (int e = 0; e < kEntries; ++e) acc[e] = zero();
  const float* q = at.q;
  const float* rows = at.expansion.rows;
  const int lines = (at.expansion.width + kLine - 1) / kLine;
  for (int line = 0; line < lines; ++line) {
    const bool last = line + 1 == lines;
    // Beyond the width both are zero.
    MR_UNROLL(16)
    for (int j = 0; j < 16; ++j) {
      const V16 query = load(q + j * kMlaLanes);
      MR_UNROLL(16)
      for (int e = 0; e < kEntries; ++e) acc[e] = dot_broadcast(acc[e], query, rows + e * 16 + j);
      if (!last) expand.template step<kWhole>(line + 1, j);
    }
    q += kSquare;
    rows += kSquare;
  }
  const V16 factor = set1(at.scale);
  MR_UNROLL(16)
  for (int e = 0; e < kEntries; ++e) store(at.scores + e * kMlaLanes, acc[e] * factor);
}

struct PairRows {
  static constexpr int kElementBytes = 2;
  static constexpr int kEntriesPerStep = 2;
  static constexpr int kBlock = PairExpander::kBlock;
  using Expander = PairExpander;

  MR_INLINE static V16 multiply_add(V16 acc, V16 a, const float* p) {
    return dot_broadcast(acc, a, p);
  }

  MR_INLINE static void store_queries(float* to, const V16* elements) {
    for (int d = 0; d < 16; d += 2) {
      store_int(to + d / 2 * kMlaLanes, pairs_of(elements[d], elements[d + 1]));
    }
  }

  template <typename Expand>
  MR_INLINE static void score(const MlaScores& at, const Expand& expand) {
    if (PairExpander::is_whole(at.expansion)) {
      return score_lines<16, true>(at, expand);
    }
    if (at.expansion.tile.count > 8) return score_lines<16, false>(at, expand);
    score_lines<8, false>(at, expand);
  }

  MR_INLINE static void pack_weights(int count, float* scores) {
    for (int e = 0; e < count; e += 2) {
      const V16 second = e + 1 < count ? load(scores + (e + 1) * kMlaLanes) : zero();
      store_int(scores + e / 2 * kMlaLanes, pairs_of(load(scores + e * kMlaLanes), second));
    }
  }
};

}  // namespace

extern const MlaKernels kMlaKernelsAvx512Bf16;
const MlaKernels kMlaKernelsAvx512Bf16 = {"avx512bf16", run_rows<PairRows>, merge_parts,
                                          write_mla_rows};

}  // namespace millrace
