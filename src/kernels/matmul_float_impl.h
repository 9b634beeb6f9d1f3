// The f32 tile kernels over V16 and what goes around them (packing of activations, expansion of
// weights, epilogues), compiled once per instruction set by matmul_float_<isa>.cc.
#pragma once

#include "kernels/attention_vec.h"
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

template <class Panel, int kRows, int kPanels>
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
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        const V16 value = set1(x[m]);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) acc[p][m] = fma(value, first[p], acc[p][m]);
      }
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        const V16 value = set1(x[kRows + m]);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) acc[p][m] = fma(value, second[p], acc[p][m]);
      }
    }
    if (k < span.end) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const V16 last = Panel::one(panels[p] + w);
#pragma GCC unroll 16
        for (int m = 0; m < kRows; ++m) acc[p][m] = fma(set1(x[m]), last, acc[p][m]);
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) end_span<kRows>(args, p, span, acc[p]);
  }
}

// The scales of a block of fp8, for codes over 256: exact, and so is their product's one rounding.
MR_INLINE V16 fp8_scales(const uint8_t* block) {
  return load(reinterpret_cast<const float*>(block + kFp8Group * 16)) * set1(256.0f);
}

// As float_tile for panels of fp8; spans are whole blocks.
template <int kRows, int kPanels>
void fp8_tile(const TileArgs& args) {
  const uint8_t* panels[kPanels];
  for (int p = 0; p < kPanels; ++p) panels[p] = reinterpret_cast<const uint8_t*>(args.panels[p]);
  const float* activations = reinterpret_cast<const float*>(args.activations);
  for (int s = 0; s < args.num_spans; ++s) {
    const KSpan span = args.spans[s];
    V16 acc[kPanels][kRows];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) begin_span<kRows>(args, p, span, acc[p]);
    const float* x = activations + int64_t{span.begin} * kRows;
    int64_t w = int64_t{span.begin - args.origin} / kFp8Group * kFp8BlockBytes;
    for (int32_t k = span.begin; k < span.end; k += kFp8Group, w += kFp8BlockBytes) {
      V16 scale[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) scale[p] = fp8_scales(panels[p] + w);
      const int64_t ahead = prefetch_place(args, w);
      for (int i = 0; i < kFp8Group; ++i, x += kRows) {
        V16 weight[kPanels];
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          if constexpr (kRows <= kMaxRowsToPrefetch) {
            if (i % 4 == 0) prefetch_level2(panels[p] + ahead + 16 * i);
          }
          weight[p] = load_e4m3_over_256(panels[p] + w + 16 * i) * scale[p];
        }
#pragma GCC unroll 16
        for (int m = 0; m < kRows; ++m) {
          const V16 value = set1(x[m]);
#pragma GCC unroll 4
          for (int p = 0; p < kPanels; ++p) acc[p][m] = fma(value, weight[p], acc[p][m]);
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) end_span<kRows>(args, p, span, acc[p]);
  }
}

// scale * (code - offset) + min of input kInputInWord of four, in this order.
template <int kShift>
MR_INLINE V16 code_value(I16 codes, int mask, I16 offset) {
  const I16 code = and_bits(shift_right<kShift>(codes), set1_int(mask));
  return to_float(sub(code, offset));
}

// Four inputs of a word of codes (kBits each, from bit kFirstBit of every byte on) to dst [4][16].
template <int kFirstBit>
MR_INLINE void expand_word(I16 codes, int mask, I16 offset, V16 scale, const V16* min, float* dst) {
  const V16 values[4] = {code_value<kFirstBit>(codes, mask, offset),
                         code_value<kFirstBit + 8>(codes, mask, offset),
                         code_value<kFirstBit + 16>(codes, mask, offset),
                         code_value<kFirstBit + 24>(codes, mask, offset)};
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const V16 product = scale * values[j];
    store(dst + 16 * j, min != nullptr ? product + *min : product);
  }
}

void expand_quantised(const QuantLayout& layout, const std::byte* panel, int64_t begin,
                      int64_t inputs, float* dst) {
  const int code_bytes = layout.group * layout.bits * 2;
  const int scale_bytes = layout.wide_scales ? 64 : 32;
  const int block_bytes = code_bytes + scale_bytes * (layout.has_min ? 2 : 1);
  const I16 offset = set1_int(layout.code_offset);
  const auto load_scales = [&](const uint8_t* p) {
    return layout.wide_scales ? load(reinterpret_cast<const float*>(p))
                              : load_f16(reinterpret_cast<const uint16_t*>(p));
  };
  const uint8_t* block =
      reinterpret_cast<const uint8_t*>(panel) + begin / layout.group * block_bytes;
  for (int64_t i = 0; i < inputs; i += layout.group, block += block_bytes) {
    const V16 scale = load_scales(block + code_bytes);
    const V16 min = layout.has_min ? load_scales(block + code_bytes + scale_bytes) : zero();
    const V16* added = layout.has_min ? &min : nullptr;
    const int words = code_bytes / 64;
    float* to = dst + i * 16;
    for (int word = 0; word < words; ++word) {
      const I16 codes = load_int(block + 64 * word);
      if (layout.bits == 8) {
        expand_word<0>(codes, 0xff, offset, scale, added, to + 64 * word);
      } else {
        expand_word<0>(codes, 0x0f, offset, scale, added, to + 64 * word);
        expand_word<4>(codes, 0x0f, offset, scale, added, to + 64 * (words + word));
      }
    }
  }
}

void expand_fp8(const std::byte* panel, int64_t begin, int64_t inputs, float* dst) {
  const uint8_t* block =
      reinterpret_cast<const uint8_t*>(panel) + begin / kFp8Group * kFp8BlockBytes;
  for (int64_t i = 0; i < inputs; i += kFp8Group, block += kFp8BlockBytes) {
    const V16 scale = fp8_scales(block);
    for (int j = 0; j < kFp8Group; ++j) {
      store(dst + (i + j) * 16, load_e4m3_over_256(block + 16 * j) * scale);
    }
  }
}

template <class Panel>
void expand_floats(const std::byte* panel, int64_t begin, int64_t inputs, float* dst) {
  const uint8_t* from = reinterpret_cast<const uint8_t*>(panel) + begin * Panel::kStepBytes;
  int64_t i = 0;
  for (; i + 2 <= inputs; i += 2) {
    V16 first;
    V16 second;
    Panel::two(from + i * Panel::kStepBytes, first, second);
    store(dst + i * 16, first);
    store(dst + i * 16 + 16, second);
  }
  if (i < inputs) store(dst + i * 16, Panel::one(from + i * Panel::kStepBytes));
}

void expand(PackedKind kind, const QuantLayout& layout, const std::byte* panel, int64_t begin,
            int64_t inputs, float* dst) {
  if (kind == PackedKind::kQuantised) {
    expand_quantised(layout, panel, begin, inputs, dst);
  } else if (kind == PackedKind::kFp8) {
    expand_fp8(panel, begin, inputs, dst);
  } else if (kind == PackedKind::kF16) {
    expand_floats<F16Panel>(panel, begin, inputs, dst);
  } else if (kind == PackedKind::kBF16) {
    expand_floats<BF16Panel>(panel, begin, inputs, dst);
  } else {
    expand_floats<F32Panel>(panel, begin, inputs, dst);
  }
}

void pack_row_f32(const float* x, int64_t k, int m, std::byte* dst) {
  float* to = reinterpret_cast<float*>(dst);
  if (m == 1) {
    __builtin_memcpy(to, x, static_cast<size_t>(k) * 4);
    return;
  }
  for (int64_t i = 0; i < k; ++i) to[i * m] = x[i];
}

void pack_row_bf16(const float* x, int64_t k, int m, std::byte* dst) {
  uint16_t* to = reinterpret_cast<uint16_t*>(dst);
  int64_t i = 0;
  for (; i < k; i += 16) {
    const int n = k - i < 16 ? static_cast<int>(k - i) : 16;
    uint16_t rounded[16];
    store_bf16(rounded, load_first(x + i, n));
    for (int j = 0; j < n; j += 2) __builtin_memcpy(to + (i + j) * m, rounded + j, 4);
  }
}

struct MaxBits {
  MR_INLINE V16 operator()(V16 a, V16 b) const { return as_float(max(as_int(a), as_int(b))); }
};
struct AddBits {
  MR_INLINE V16 operator()(V16 a, V16 b) const { return as_float(add(as_int(a), as_int(b))); }
};

// Up to 16 groups of 32, one to a lane: scales and their inverses; an inverse of 0 says that the
// codes are 0.
MR_INLINE void group_scales(const float* x, int groups, V16& scales, V16& inverses) {
  V16 largest[16];
  for (int g = 0; g < 16; ++g) largest[g] = zero();
  for (int g = 0; g < groups; ++g) {
    largest[g] = as_float(max(as_int(abs(load(x + 32 * g))), as_int(abs(load(x + 32 * g + 16)))));
  }
  const V16 amax = reduce_rows<16>(largest, MaxBits{});
  const M16 not_finite = greater(as_int(amax), set1_int(0x7f7fffff));
  const M16 tiny = less(amax, set1(0x1p-120f));
  scales = select(tiny, zero(), amax / set1(127.0f));
  scales = select(not_finite, set1(__builtin_nanf("")), scales);
  inverses = select(tiny, zero(), set1(127.0f) / amax);
  inverses = select(not_finite, zero(), inverses);
}

// See activations.h for the definition.
void pack_row_int8(const float* x, int64_t k, int m, std::byte* dst) {
  for (int64_t first = 0; first < k; first += 16 * 32) {
    const int groups = k - first < 16 * 32 ? static_cast<int>((k - first) / 32) : 16;
    V16 scales;
    V16 inverses;
    group_scales(x + first, groups, scales, inverses);
    float inverse[16];
    store(inverse, inverses);
    V16 low[16];
    V16 high[16];
    for (int g = 0; g < 16; ++g) low[g] = high[g] = zero();
    std::byte* block = dst + first / 32 * 48 * m;
    for (int g = 0; g < groups; ++g) {
      uint8_t codes[32] = {};
      if (inverse[g] != 0.0f) {
        const float* from = x + first + 32 * g;
        const I16 low_codes = to_int(load(from) * set1(inverse[g]));
        const I16 high_codes = to_int(load(from + 16) * set1(inverse[g]));
        store_low8(codes, low_codes);
        store_low8(codes + 16, high_codes);
        low[g] = as_float(low_codes);
        high[g] = as_float(high_codes);
      }
      std::byte* to = block + g * 48 * m;
      for (int i = 0; i < 8; ++i) __builtin_memcpy(to + 4 * i * m, codes + 4 * i, 4);
    }
    const I16 low_sums = as_int(reduce_rows<16>(low, AddBits{}));
    const I16 sums = add(low_sums, as_int(reduce_rows<16>(high, AddBits{})));
    // The four words after a group's codes, by group.
    alignas(64) uint32_t words[4][16];
    store_int(words[0], as_int(scales));
    store_int(words[1], sub(zero_int(), sums));
    store_int(words[2], as_int(scales * to_float(sums)));
    store_int(words[3], sub(zero_int(), low_sums));
    for (int g = 0; g < groups; ++g) {
      std::byte* to = block + (g * 48 + 32) * m;
      for (int w = 0; w < 4; ++w) __builtin_memcpy(to + 4 * w * m, &words[w][g], 4);
    }
  }
}

void finish(const FinishArgs& args) {
  const int lanes = args.lanes;
  const V16 bias = args.bias != nullptr ? load_first(args.bias, lanes) : zero();
  const V16 up_bias = args.up_bias != nullptr ? load_first(args.up_bias, lanes) : zero();
  for (int64_t row = 0; row < args.rows; ++row) {
    V16 sum = load(args.sums + row * 16);
    if (args.bias != nullptr) sum = sum + bias;
    if (args.epilogue == Epilogue::kAddResidual) {
      float* to = args.residual + row * args.residual_stride;
      const V16 added = load_first(to, lanes) + round_to(args.round, sum);
      store_first(to, round_to(args.round, added), lanes);
      continue;
    }
    if (args.epilogue == Epilogue::kSiluMul) {
      V16 up = load(args.up_sums + row * 16);
      if (args.up_bias != nullptr) up = up + up_bias;
      sum = silu(sum) * up;
    }
    store_first(args.out + row * args.out_stride, round_to(args.round, sum), lanes);
  }
}

// kSide panels side by side for tiles of two rows and more, kSideSingle for one row.
template <class Panel, int kSide, int kSideSingle, int... kRows>
void fill_float_rows(TileFunction* by_rows) {
  ((by_rows[kRows] = float_tile < Panel, kRows, kRows == 1 ? kSideSingle : kSide >), ...);
}

template <int kSide, int kSideSingle, int... kRows>
void fill_fp8_rows(TileFunction* by_rows) {
  ((by_rows[kRows] = fp8_tile < kRows, kRows == 1 ? kSideSingle : kSide >), ...);
}

// The table for tiles of the given row counts; the last is the largest.
template <int kSide, int kSideSingle, int... kRows>
FloatKernels make_float_kernels(const char* name) {
  FloatKernels kernels{};
  kernels.name = name;
  ((kernels.tile_rows = kRows), ...);
  kernels.panels = kSide;
  kernels.panels_single = kSideSingle;
  fill_float_rows<F32Panel, kSide, kSideSingle, kRows...>(kernels.f32);
  fill_float_rows<F16Panel, kSide, kSideSingle, kRows...>(kernels.f16);
  fill_float_rows<BF16Panel, kSide, kSideSingle, kRows...>(kernels.bf16);
  fill_fp8_rows<kSide, kSideSingle, kRows...>(kernels.fp8);
  kernels.expand = expand;
  kernels.finish = finish;
  kernels.pack_f32 = pack_row_f32;
  kernels.pack_bf16 = pack_row_bf16;
  kernels.pack_int8 = pack_row_int8;
  return kernels;
}

}  // namespace
}  // namespace millrace
