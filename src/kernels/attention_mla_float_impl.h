// Latent attention over rows expanded to fp32; compiled once per instruction set by
// attention_mla_<isa>.cc.
#pragma once

#include "kernels/attention_mla_impl.h"

namespace millrace {
namespace {

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

// An expanded tile is [blocks of 16 elements][16 entries][16 elements]: scores and values both read
// single elements from it, each the broadcast operand of one fma, at constant distances.
//
// Expands one tile, a block of 16 elements of one entry at a time, and asks for the rows of the
// next tile meanwhile. The score loop calls step() so that both hide behind its arithmetic.
template <DType kDType>
class FloatExpander {
 public:
  explicit FloatExpander(const MlaExpansion& at)
      : rows_(at.tile.rows),
        scales_(at.tile.scales),
        count_(at.tile.count),
        next_rows_(at.next.rows),
        next_scales_(at.next.scales),
        next_count_(at.next.count),
        latent_(at.latent),
        width_(at.width),
        to_(at.values) {}

  // Whether all entries are there and consist of whole blocks.
  MR_INLINE static bool is_whole(const MlaExpansion& at) {
    return at.tile.count == 16 && at.width % 16 == 0;
  }

  MR_INLINE void begin() const {
    for (int i = 0; i < 16; ++i) step<false>(0, i);
  }

  // Brings elements [16 * block, 16 * block + 16) of entry i into the tile, and asks for the same
  // of the next tile. kWhole: is_whole(), and the block is within the width.
  template <bool kWhole>
  MR_INLINE void step(int block, int i) const {
    constexpr int kBytes = 16 * element_bytes<kDType>();
    const int asked = block * kBytes % kCacheLine == 0 ? next_count_ : 0;
    if (i < asked) {
      prefetch_tile(next_rows_[i] + block * kBytes);
      if (kDType == DType::kI8 && block == 0) prefetch_tile(next_scales_[i]);
    }
    float* to = to_ + block * kSquare + i * 16;
    if (!kWhole && (i >= count_ || 16 * block >= width_)) return;
    if (!kWhole && 16 * block + 16 > width_) return step_tail(block, i, to);
    V16 elements = load_elements<kDType>(rows_[i] + block * kBytes);
    if constexpr (kDType == DType::kI8) elements = elements * scale(block, i);
    store(to, elements);
  }

 private:
  // The scales of the 16 elements of a block.
  MR_INLINE V16 scale(int block, int i) const {
    const float* scales = scales_[i];
    const int of_latent = latent_ - 16 * block;
    if (of_latent >= 16) return set1(scales[0]);
    if (of_latent <= 0) return set1(scales[1]);
    return select(mask_first(of_latent), set1(scales[0]), set1(scales[1]));
  }

  // The last, incomplete block of a row: nothing beyond the row is read.
  [[gnu::noinline]] void step_tail(int block, int i, float* to) const {
    constexpr int kSize = element_bytes<kDType>();
    alignas(64) std::byte elements[64] = {};
    __builtin_memcpy(elements, rows_[i] + 16 * block * kSize,
                     static_cast<size_t>((width_ - 16 * block) * kSize));
    V16 tail = load_elements<kDType>(elements);
    if constexpr (kDType == DType::kI8) tail = tail * scale(block, i);
    store(to, tail);
  }

  // Copies of what an MlaExpansion refers to: behind a reference all of it would be loaded again
  // after each store to the tile.
  const std::byte* const* rows_;
  const float* const* scales_;
  int count_;
  const std::byte* const* next_rows_;
  const float* const* next_scales_;
  int next_count_;
  int latent_;
  int width_;
  float* to_;
};

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

// Scores of kEntries entries from `first` on: each a chain over the elements. Block b + 1 is
// expanded while block b is used. kWhole: Expand's is_whole(), and a loop without questions.
template <int kEntries, bool kWhole, typename Expand>
void score_entries(const MlaScores& at, int first, const Expand& expand) {
  V16 acc[kEntries];
  MR_UNROLL(16)
  for (int e = 0; e < kEntries; ++e) acc[e] = zero();
  const float* q = at.q;
  const float* tile = at.expansion.values + first * 16;
  const auto add_element = [&](int j) __attribute__((always_inline)) {
    const V16 query = load(q + j * kMlaLanes);
    MR_UNROLL(16)
    for (int e = 0; e < kEntries; ++e) acc[e] = fma_broadcast(acc[e], query, tile + e * 16 + j);
  };
  const int width = at.expansion.width;
  int block = 0;
  for (; 16 * block + 16 < width; ++block, q += kSquare, tile += kSquare) {
    const auto add_and_expand = [&](int j) __attribute__((always_inline)) {
      add_element(j);
      expand.template step<kWhole>(block + 1, j);
    };
    if constexpr (kWhole) {
      MR_UNROLL(16)
      for (int j = 0; j < 16; ++j) add_and_expand(j);
    } else {
      for (int j = 0; j < 16; ++j) add_and_expand(j);
    }
  }
  for (int j = 0; j < width - 16 * block; ++j) add_element(j);
  const V16 factor = set1(at.scale);
  float* scores = at.scores + first * kMlaLanes;
  MR_UNROLL(16)
  for (int e = 0; e < kEntries; ++e) store(scores + e * kMlaLanes, acc[e] * factor);
}

template <DType kDType>
struct FloatRows {
  static constexpr int kElementBytes = element_bytes<kDType>();
  static constexpr int kEntriesPerStep = 1;
  static constexpr int kBlock = kSquare;
  using Expander = FloatExpander<kDType>;

  MR_INLINE static V16 multiply_add(V16 acc, V16 a, const float* p) {
    return fma_broadcast(acc, a, p);
  }

  MR_INLINE static void store_queries(float* to, const V16* elements) {
    for (int d = 0; d < 16; ++d) store(to + d * kMlaLanes, elements[d]);
  }

  // Scores of all entries of a tile, and at most of absent ones up to a multiple of 4.
  template <typename Expand>
  MR_INLINE static void score(const MlaScores& at, const Expand& expand) {
    const int count = at.expansion.tile.count;
    if constexpr (kMlaChains == 16) {
      if (Expander::is_whole(at.expansion)) return score_entries<16, true>(at, 0, expand);
      if (count > 12) return score_entries<16, false>(at, 0, expand);
      if (count > 8) return score_entries<12, false>(at, 0, expand);
      if (count > 4) return score_entries<8, false>(at, 0, expand);
      return score_entries<4, false>(at, 0, expand);
    } else {
      score_entries<4, false>(at, 0, expand);
      for (int e = 4; e < count; e += 4) score_entries<4, false>(at, e, NoExpander{});
    }
  }

  MR_INLINE static void pack_weights(int, float*) {}
};

void run_item(const MlaArgs& args, const MlaItem& item, std::byte* scratch) {
  switch (args.cache.dtype) {
    case DType::kF16:
      return run_rows<FloatRows<DType::kF16>>(args, item, scratch);
    case DType::kBF16:
      return run_rows<FloatRows<DType::kBF16>>(args, item, scratch);
    case DType::kI8:
      return run_rows<FloatRows<DType::kI8>>(args, item, scratch);
    default:
      return run_rows<FloatRows<DType::kF32>>(args, item, scratch);
  }
}

constexpr MlaKernels make_mla_kernels(const char* name) {
  return {name, run_item, merge_parts, write_mla_rows};
}

}  // namespace
}  // namespace millrace
