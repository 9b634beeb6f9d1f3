// The f32 tile kernels over V16 and what goes around them (packing of activations, expansion of
// weights, epilogues), compiled once per instruction set by matmul_float_<isa>.cc.
#pragma once

#include "kernels/matmul_float_tile.h"
#include "kernels/simd_math.h"
#include "kernels/simd_rows.h"

namespace millrace {
namespace {

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
        add_products<kRows, kPanels>(x, weight, acc);
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

// to[i * m + r] = rows[r][i]
template <int kCount>
MR_INLINE void interleave(const float* const* rows, int64_t k, int m, float* to) {
  const float* row[kCount];
  for (int r = 0; r < kCount; ++r) row[r] = rows[r];
  for (int64_t i = 0; i < k; ++i, to += m) {
#pragma GCC unroll 4
    for (int r = 0; r < kCount; ++r) to[r] = row[r][i];
  }
}

void pack_rows_f32(const float* const* rows, int count, int64_t k, int m, std::byte* dst) {
  float* to = reinterpret_cast<float*>(dst);
  if (m == 1) {
    __builtin_memcpy(to, rows[0], static_cast<size_t>(k) * 4);
    return;
  }
  if (count == m && m >= kLeastRowsToTranspose) return transpose_rows(rows, k, m, to);
  int r = 0;
  for (; r + 4 <= count; r += 4) interleave<4>(rows + r, k, m, to + r);
  for (; r < count; ++r) interleave<1>(rows + r, k, m, to + r);
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

void pack_rows_bf16_wide(const float* const* rows, int count, int64_t k, int m, std::byte* dst) {
  constexpr int64_t kPart = 64;
  alignas(64) float rounded[kMaxTileRows][kPart];
  const float* from[kMaxTileRows];
  for (int r = 0; r < count; ++r) from[r] = rounded[r];
  for (int64_t part = 0; part < k; part += kPart) {
    const int64_t inputs = k - part < kPart ? k - part : kPart;
    for (int r = 0; r < count; ++r) {
      for (int64_t i = 0; i < inputs; i += 16) {
        const int n = inputs - i < 16 ? static_cast<int>(inputs - i) : 16;
        store(rounded[r] + i, round_to_bf16(load_first(rows[r] + part + i, n)));
      }
    }
    pack_rows_f32(from, count, inputs, m, dst + part * m * 4);
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

// Rounds to `args.round` if kRounded; all lanes are outputs if kWhole.
template <Epilogue kEpilogue, bool kRounded, bool kWhole>
void finish_as(const FinishArgs& args) {
  const int lanes = args.lanes;
  const DType type = args.round;
  const auto round = [=](V16 x) { return kRounded ? round_to(type, x) : x; };
  const auto load_row = [=](const float* from) {
    return kWhole ? load(from) : load_first(from, lanes);
  };
  const auto store_row = [=](float* to, V16 x) {
    if constexpr (kWhole) {
      store(to, x);
    } else {
      store_first(to, x, lanes);
    }
  };
  const bool has_bias = args.bias != nullptr;
  const bool has_up_bias = kEpilogue == Epilogue::kSiluMul && args.up_bias != nullptr;
  const V16 bias = has_bias ? load_row(args.bias) : zero();
  const V16 up_bias = has_up_bias ? load_row(args.up_bias) : zero();
  const bool adds = kEpilogue == Epilogue::kAddResidual;
  float* to = adds ? args.residual : args.out;
  const int64_t stride = adds ? args.residual_stride : args.out_stride;
  const float* sums = args.sums;
  const float* up_sums = args.up_sums;
  const float* const end = sums + args.rows * 16;
  for (; sums != end; sums += 16, to += stride) {
    V16 sum = load(sums);
    if (has_bias) sum = sum + bias;
    if constexpr (kEpilogue == Epilogue::kAddResidual) {
      store_row(to, round(load_row(to) + round(sum)));
      continue;
    }
    if constexpr (kEpilogue == Epilogue::kSiluMul) {
      V16 up = load(up_sums);
      up_sums += 16;
      if (has_up_bias) up = up + up_bias;
      sum = silu(sum) * up;
    }
    store_row(to, round(sum));
  }
}

template <Epilogue kEpilogue>
void finish_with(const FinishArgs& args) {
  const bool whole = args.lanes == 16;
  if (args.round != DType::kF32) {
    return whole ? finish_as<kEpilogue, true, true>(args) : finish_as<kEpilogue, true, false>(args);
  }
  return whole ? finish_as<kEpilogue, false, true>(args) : finish_as<kEpilogue, false, false>(args);
}

void finish(const FinishArgs& args) {
  switch (args.epilogue) {
    case Epilogue::kStore:
      return finish_with<Epilogue::kStore>(args);
    case Epilogue::kAddResidual:
      return finish_with<Epilogue::kAddResidual>(args);
    case Epilogue::kSiluMul:
      return finish_with<Epilogue::kSiluMul>(args);
  }
}

template <void (*kPackRow)(const float* x, int64_t k, int m, std::byte* dst)>
void pack_each_row(const float* const* rows, int count, int64_t k, int m, std::byte* dst) {
  for (int r = 0; r < count; ++r) kPackRow(rows[r], k, m, dst + 4 * r);
}

// kSide panels side by side for tiles of two rows and more, kSideSingle for one row.
template <class Panel, int kSide, int kSideSingle, int... kRows>
void fill_float_rows(TileFunction* by_rows) {
  ((by_rows[kRows] = float_tile < F32Rule, Panel, kRows, kRows == 1 ? kSideSingle : kSide >), ...);
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
  kernels.pack_f32 = pack_rows_f32;
  kernels.pack_bf16 = pack_each_row<pack_row_bf16>;
  kernels.pack_bf16_wide = pack_rows_bf16_wide;
  kernels.pack_int8 = pack_each_row<pack_row_int8>;
  return kernels;
}

}  // namespace
}  // namespace millrace
