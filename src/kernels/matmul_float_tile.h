// The tile kernel of float weights, for the files of one instruction set (see simd.h).
#pragma once

#include "kernels/matmul_tile.h"

namespace millrace {
namespace {

// One and two K steps of a panel as floats, by kind of the panel. Steps are inputs.
struct F32Panel {
  static constexpr int kStepBytes = 64;
  MR_INLINE static void two(const uint8_t* p, V16& first, V16& second) {
    first = load(reinterpret_cast<const float*>(p));
    second = load(reinterpret_cast<const float*>(p + 64));
  }
  MR_INLINE static V16 one(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};

struct F16Panel {
  static constexpr int kStepBytes = 32;
  MR_INLINE static void two(const uint8_t* p, V16& first, V16& second) {
    first = load_f16(reinterpret_cast<const uint16_t*>(p));
    second = load_f16(reinterpret_cast<const uint16_t*>(p + 32));
  }
  MR_INLINE static V16 one(const uint8_t* p) {
    return load_f16(reinterpret_cast<const uint16_t*>(p));
  }
};

// Pairs: spans begin and end at even inputs, so `one` is never reached.
struct BF16Panel {
  static constexpr int kStepBytes = 32;
  MR_INLINE static void two(const uint8_t* p, V16& first, V16& second) {
    const I16 pairs = load_int(p);
    first = bf16_first(pairs);
    second = bf16_second(pairs);
  }
  MR_INLINE static V16 one(const uint8_t* p) { return bf16_first(load_int(p)); }
};

// One step of the chains of a tile: the activations of one input times its weights.
template <int kRows, int kPanels>
MR_INLINE void add_products(const float* x, const V16* weights, V16 (*acc)[kRows]) {
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    const V16 value = set1(x[m]);
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) fma_into(acc[p][m], value, weights[p]);
  }
}

// How the class f32 takes products: in the order of the inputs, in the thread's own mode.
struct F32Rule {
  static constexpr bool kSecondFirst = false;  // of a pair of inputs; spans are whole pairs then
  // Around the chains: what becomes of denormals. (The tree's additions come after it, see
  // fma_into.)
  MR_INLINE void begin() {}
  MR_INLINE void end() {}
};

// Chains of fma over the inputs, as `Rule` says.
template <class Rule, class Panel, int kRows, int kPanels>
void float_tile(const TileArgs& args) {
  const uint8_t* panels[kPanels];
  for (int p = 0; p < kPanels; ++p) panels[p] = reinterpret_cast<const uint8_t*>(args.panels[p]);
  const float* activations = reinterpret_cast<const float*>(args.activations);
  for (int s = 0; s < args.num_spans; ++s) {
    const KSpan span = args.spans[s];
    V16 acc[kPanels][kRows];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) begin_span<kRows>(args, p, span, acc[p]);
    const float* x = activations + int64_t{span.begin} * kRows;
    int64_t w = int64_t{span.begin - args.origin} * Panel::kStepBytes;
    int32_t k = span.begin;
    Rule rule;
    rule.begin();
    for (; k + 2 <= span.end; k += 2, x += 2 * kRows, w += 2 * Panel::kStepBytes) {
      V16 first[kPanels];
      V16 second[kPanels];
      const int64_t ahead = prefetch_place(args, w);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        if constexpr (kRows <= kMaxRowsToPrefetch) {
          prefetch_level2(panels[p] + ahead);
          if constexpr (Panel::kStepBytes == 64) prefetch_level2(panels[p] + ahead + 64);
        }
        Panel::two(panels[p] + w, first[p], second[p]);
      }
      if constexpr (Rule::kSecondFirst) {
        add_products<kRows, kPanels>(x + kRows, second, acc);
        add_products<kRows, kPanels>(x, first, acc);
      } else {
        add_products<kRows, kPanels>(x, first, acc);
        add_products<kRows, kPanels>(x + kRows, second, acc);
      }
    }
    if (!Rule::kSecondFirst && k < span.end) {
      V16 last[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) last[p] = Panel::one(panels[p] + w);
      add_products<kRows, kPanels>(x, last, acc);
    }
    rule.end();
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) end_span<kRows>(args, p, span, acc[p]);
  }
}

}  // namespace
}  // namespace millrace
