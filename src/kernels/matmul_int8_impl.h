// The int8 tile kernels over V16, compiled once per instruction set by matmul_int8_<isa>.cc.
//
// Per group of 32 inputs and row: an exact integer dot product of the codes, then one fma into the
// chain (and one more for formats with a minimum). Codes are unsigned; the format's offset comes in
// as the start value of the integer sum, -offset * sum of the row's codes. Four-bit codes are taken
// apart once for all rows of the tile.
#pragma once

#include "kernels/matmul_tile.h"

namespace millrace {
namespace {

// What distinguishes the layouts, for the compiler.
template <int kBitsValue, int kGroupValue, int kOffsetShiftValue, bool kWideValue, bool kMinValue>
struct Layout {
  static constexpr int kBits = kBitsValue;
  static constexpr int kGroup = kGroupValue;
  static constexpr int kOffsetShift = kOffsetShiftValue;  // offset is 1 << this; 0: no offset
  static constexpr bool kWide = kWideValue;
  static constexpr bool kMin = kMinValue;
  static constexpr int kScaleBytes = kWide ? 64 : 32;
  static constexpr int kCodeBytes = kGroup * kBits * 2;
  static constexpr int kBlockBytes = kCodeBytes + kScaleBytes * (kMin ? 2 : 1);
  static constexpr int kStepBytes = kBlockBytes * (32 / kGroup);
};

template <class L>
MR_INLINE V16 load_scales(const uint8_t* p) {
  if constexpr (L::kWide) {
    return load(reinterpret_cast<const float*>(p));
  } else {
    return load_f16(reinterpret_cast<const uint16_t*>(p));
  }
}

// 32-bit words of the packed activations, at byte offset 4 * word.
MR_INLINE float float_word(const uint8_t* group, int word) {
  float value;
  __builtin_memcpy(&value, group + 4 * word, 4);
  return value;
}

template <class L>
MR_INLINE I16 start_of_dot(I16 minus_sum) {
  if constexpr (L::kOffsetShift == 0) {
    return zero_int();
  } else {
    return shift_left<L::kOffsetShift>(minus_sum);
  }
}

// Whether dot products of whole bytes cost no more than those of a few bits.
#if defined(__AVX512VNNI__)
constexpr bool kDotOfWholeBytes = true;
#else
constexpr bool kDotOfWholeBytes = false;
#endif

// Tiles of up to so many rows wait for memory; higher ones fill the arithmetic units.
constexpr int kMaxLowRows = 3;

// dot += codes times the 4 bytes at x. Tall tiles save the instruction that loads the bytes; low
// ones run better with it.
template <int kCodeBits, int kRows>
MR_INLINE I16 dot_step(I16 dot, I16 codes, const uint8_t* x) {
  if constexpr (kRows <= kMaxLowRows) {
    return dot4<kCodeBits>(dot, codes, broadcast4(x));
  } else {
    return dot4_broadcast<kCodeBits>(dot, codes, x);
  }
}

// dot[m] += codes of steps [kBegin, kBegin + kSteps) times row m; 8-bit codes.
template <class L, int kRows, int kBegin, int kSteps>
MR_INLINE void dot_bytes(const uint8_t* codes, const uint8_t* x, I16* dot) {
#pragma GCC unroll 8
  for (int i = 0; i < kSteps; ++i) {
    const I16 w = load_int(codes + 64 * i);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      dot[m] = dot_step<8, kRows>(dot[m], w, x + 4 * ((kBegin + i) * kRows + m));
    }
  }
}

// As dot_nibbles, with the high nibbles left where they are: 16 times their sum, divided at the end
// (exactly). Fewer operations for one row, and two short chains in place of a long one. Wants dot
// products of whole bytes.
template <int kRows>
MR_INLINE void dot_nibbles_in_place(const uint8_t* codes, const uint8_t* x, I16* dot) {
  const I16 low_mask = set1_int(0x0f0f0f0f);
  const I16 high_mask = set1_int(static_cast<int32_t>(0xf0f0f0f0u));
  I16 high_dot[kRows];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) high_dot[m] = zero_int();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const I16 both = load_int(codes + 64 * i);
    const I16 low = and_bits(both, low_mask);
    const I16 high = and_bits(both, high_mask);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      dot[m] = dot4<8>(dot[m], low, broadcast4(x + 4 * (i * kRows + m)));
      high_dot[m] = dot4<8>(high_dot[m], high, broadcast4(x + 4 * ((i + 4) * kRows + m)));
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) dot[m] = add(dot[m], shift_right_signed<4>(high_dot[m]));
}

// All 8 steps; 4-bit codes, low nibbles are steps 0 to 3 and high nibbles steps 4 to 7.
template <class L, int kRows>
MR_INLINE void dot_nibbles(const uint8_t* codes, const uint8_t* x, I16* dot) {
  if constexpr (kDotOfWholeBytes && kRows <= kMaxLowRows) {
    return dot_nibbles_in_place<kRows>(codes, x, dot);
  }
  const I16 low_mask = set1_int(0x0f0f0f0f);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const I16 both = load_int(codes + 64 * i);
    const I16 low = and_bits(both, low_mask);
    const I16 high = and_bits(shift_right<4>(both), low_mask);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      dot[m] = dot_step<4, kRows>(dot[m], low, x + 4 * (i * kRows + m));
    }
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      dot[m] = dot_step<4, kRows>(dot[m], high, x + 4 * ((i + 4) * kRows + m));
    }
  }
}

// acc[m] = fma(float(dot), scale of the weights * scale of the row, acc[m])
template <int kRows>
MR_INLINE void add_scaled(V16 weight_scale, const uint8_t* words, const I16* dot, V16* acc) {
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    acc[m] = fma(to_float(dot[m]), weight_scale * set1(float_word(words, m)), acc[m]);
  }
}

// One group of 32 inputs. `x`: the tile's packed group.
template <class L, int kRows>
MR_INLINE void multiply_group(const uint8_t* w, const uint8_t* x, V16* acc) {
  const uint8_t* words = x + 32 * kRows;
  I16 dot[kRows];
  if constexpr (L::kGroup == 32) {
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      dot[m] = start_of_dot<L>(broadcast4(words + 4 * (kRows + m)));
    }
    if constexpr (L::kBits == 4) {
      dot_nibbles<L, kRows>(w, x, dot);
    } else {
      dot_bytes<L, kRows, 0, 8>(w, x, dot);
    }
    add_scaled<kRows>(load_scales<L>(w + L::kCodeBytes), words, dot, acc);
    if constexpr (L::kMin) {
      const V16 mins = load_scales<L>(w + L::kCodeBytes + L::kScaleBytes);
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        acc[m] = fma(mins, set1(float_word(words, 2 * kRows + m)), acc[m]);
      }
    }
  } else {
    static_assert(L::kBits == 8 && L::kGroup == 16 && !L::kMin);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      dot[m] = start_of_dot<L>(broadcast4(words + 4 * (3 * kRows + m)));
    }
    dot_bytes<L, kRows, 0, 4>(w, x, dot);
    add_scaled<kRows>(load_scales<L>(w + L::kCodeBytes), words, dot, acc);
    const uint8_t* second = w + L::kBlockBytes;
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      dot[m] = start_of_dot<L>(
          sub(broadcast4(words + 4 * (kRows + m)), broadcast4(words + 4 * (3 * kRows + m))));
    }
    dot_bytes<L, kRows, 4, 4>(second, x, dot);
    add_scaled<kRows>(load_scales<L>(second + L::kCodeBytes), words, dot, acc);
  }
}

template <class L, int kRows>
void int8_tile(const TileArgs& args) {
  constexpr int64_t kGroupBytes = 48 * kRows;
  constexpr int64_t kNearDistance = 256;
  const uint8_t* panel = reinterpret_cast<const uint8_t*>(args.panels[0]);
  const uint8_t* activations = reinterpret_cast<const uint8_t*>(args.activations);
  for (int s = 0; s < args.num_spans; ++s) {
    const KSpan span = args.spans[s];
    V16 acc[kRows];
    begin_span<kRows>(args, 0, span, acc);
    const uint8_t* w = panel + (span.begin - args.origin) * int64_t{L::kStepBytes};
    const uint8_t* x = activations + span.begin * kGroupBytes;
    const uint8_t* end = activations + span.end * kGroupBytes;
    const uint8_t* ahead =
        panel + args.prefetch_distance + (span.begin - args.origin) * args.prefetch_stride;
    for (; x != end; x += kGroupBytes, w += L::kStepBytes, ahead += args.prefetch_stride) {
      for (int64_t line = 0; line < args.prefetch_bytes; line += 64) prefetch_level2(ahead + line);
      // Long panels push the activations out of the first-level cache.
      if constexpr (kRows == 1) prefetch_level1(x + kNearDistance);
      multiply_group<L, kRows>(w, x, acc);
    }
    end_span<kRows>(args, 0, span, acc);
  }
}

template <class L, int... kRows>
void fill_rows(TileFunction* by_rows) {
  ((by_rows[kRows] = int8_tile<L, kRows>), ...);
}

// The table for tiles of the given row counts; the last is the largest.
template <int... kRows>
Int8Kernels make_int8_kernels(const char* name) {
  Int8Kernels kernels{};
  kernels.name = name;
  ((kernels.tile_rows = kRows), ...);
  const auto at = [&](Int8Layout layout) { return kernels.tile[static_cast<int>(layout)]; };
  fill_rows<Layout<8, 32, 7, false, false>, kRows...>(at(Int8Layout::kBits8Offset128));
  fill_rows<Layout<4, 32, 3, false, false>, kRows...>(at(Int8Layout::kBits4Offset8));
  fill_rows<Layout<4, 32, 0, false, true>, kRows...>(at(Int8Layout::kBits4Min));
  fill_rows<Layout<8, 32, 4, false, false>, kRows...>(at(Int8Layout::kBits8Offset16));
  fill_rows<Layout<8, 32, 0, false, true>, kRows...>(at(Int8Layout::kBits8Min));
  fill_rows<Layout<4, 32, 0, true, true>, kRows...>(at(Int8Layout::kBits4WideMin));
  fill_rows<Layout<8, 32, 0, true, true>, kRows...>(at(Int8Layout::kBits8WideMin));
  fill_rows<Layout<8, 16, 5, true, false>, kRows...>(at(Int8Layout::kBits8Group16Wide));
  fill_rows<Layout<4, 32, 3, true, false>, kRows...>(at(Int8Layout::kBits4Offset8Wide));
  return kernels;
}

}  // namespace
}  // namespace millrace
