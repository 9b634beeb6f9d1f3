// The small kernels over V16, compiled once per instruction set by row_kernels_<isa>.cc.
// reference_ops.h is their plain form.
#pragma once

#include "kernels/cache_rows_impl.h"
#include "kernels/row_kernels.h"
#include "kernels/simd_math.h"
#include "kernels/simd_rows.h"

namespace millrace {
namespace {

template <DType kDType>
void rms_norm_run(const RmsNormArgs& args, const float* x, float* out) {
  const int64_t n = args.n;
  const int64_t whole = n / 16 * 16;
  const int tail = static_cast<int>(n - whole);
  V16 slots = zero();
  for (int64_t i = 0; i < whole; i += 16) {
    const V16 v = load(x + i);
    slots = fma(v, v, slots);
  }
  if (tail > 0) {
    // Absent lanes add fma(0, 0, s) = s: sums of squares are never -0.
    const V16 v = load_first(x + whole, tail);
    slots = fma(v, v, slots);
  }
  const float mean = tree16(slots) / static_cast<float>(n);
  const V16 r = set1(1.0f / __builtin_sqrtf(mean + args.eps));
  for (int64_t i = 0; i < whole; i += 16) {
    const V16 normed = round_to<kDType>(load(x + i) * r);
    store(out + i, round_to<kDType>(normed * load(args.weight + i)));
  }
  if (tail > 0) {
    const V16 normed = round_to<kDType>(load_first(x + whole, tail) * r);
    const V16 scaled = round_to<kDType>(normed * load_first(args.weight + whole, tail));
    store_first(out + whole, scaled, tail);
  }
}

template <DType kDType>
void rms_norm_rows(const RmsNormArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int group = 0; group < args.num_groups; ++group) {
      const int64_t offset = group * args.group_stride;
      rms_norm_run<kDType>(args, args.x + row * args.x_stride + offset,
                           args.out + row * args.out_stride + offset);
    }
  }
}

void rms_norm(const RmsNormArgs& args, int64_t row_begin, int64_t row_end) {
  if (args.dtype == DType::kF16) return rms_norm_rows<DType::kF16>(args, row_begin, row_end);
  if (args.dtype == DType::kBF16) return rms_norm_rows<DType::kBF16>(args, row_begin, row_end);
  rms_norm_rows<DType::kF32>(args, row_begin, row_end);
}

// Rotates up to 16 pairs: first and second elements, in place.
template <DType kDType>
MR_INLINE void rotate(V16& first, V16& second, V16 c, V16 s) {
  const V16 a = first;
  const V16 b = second;
  first = round_to<kDType>(fma(a, c, negate(b * s)));
  second = round_to<kDType>(fma(b, c, a * s));
}

template <DType kDType>
void rope_half_split(float* x, const float* cos, const float* sin, int half) {
  int i = 0;
  for (; i + 16 <= half; i += 16) {
    V16 first = load(x + i);
    V16 second = load(x + half + i);
    rotate<kDType>(first, second, load(cos + i), load(sin + i));
    store(x + i, first);
    store(x + half + i, second);
  }
  const int tail = half - i;
  if (tail == 0) return;
  V16 first = load_first(x + i, tail);
  V16 second = load_first(x + half + i, tail);
  rotate<kDType>(first, second, load_first(cos + i, tail), load_first(sin + i, tail));
  store_first(x + i, first, tail);
  store_first(x + half + i, second, tail);
}

template <DType kDType>
void rope_interleaved(float* x, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; i += 16) {
    const int count = half - i < 16 ? half - i : 16;
    float firsts[16] = {};
    float seconds[16] = {};
    for (int j = 0; j < count; ++j) {
      firsts[j] = x[2 * (i + j)];
      seconds[j] = x[2 * (i + j) + 1];
    }
    V16 first = load(firsts);
    V16 second = load(seconds);
    rotate<kDType>(first, second, load_first(cos + i, count), load_first(sin + i, count));
    store(firsts, first);
    store(seconds, second);
    for (int j = 0; j < count; ++j) {
      x[2 * (i + j)] = firsts[j];
      x[2 * (i + j) + 1] = seconds[j];
    }
  }
}

template <DType kDType>
void rope_rows(const RopeArgs& args, int64_t row_begin, int64_t row_end) {
  const int half = args.rotary_dim / 2;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* cos = args.cos + row * half;
    const float* sin = args.sin + row * half;
    float* x = args.x + row * args.row_stride;
    for (int head = 0; head < args.num_heads; ++head, x += args.head_dim) {
      if (args.interleaved) {
        rope_interleaved<kDType>(x, cos, sin, half);
      } else {
        rope_half_split<kDType>(x, cos, sin, half);
      }
    }
  }
}

void rope(const RopeArgs& args, int64_t row_begin, int64_t row_end) {
  if (args.dtype == DType::kF16) return rope_rows<DType::kF16>(args, row_begin, row_end);
  if (args.dtype == DType::kBF16) return rope_rows<DType::kBF16>(args, row_begin, row_end);
  rope_rows<DType::kF32>(args, row_begin, row_end);
}

void exp_values(const float* x, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, exp(load(x + i)));
  const int tail = static_cast<int>(n - i);
  if (tail > 0) store_first(out + i, exp(load_first(x + i, tail)), tail);
}

// Cache write. Rows are rounded 16 elements at a time into a small buffer, then copied: keys to
// every 16th element, values side by side.
template <DType kDType, typename Element>
void write_row(const float* x, int head_dim, int stride, Element* to) {
  Element chunk[16];
  for (int d = 0; d < head_dim; d += 16) {
    const int count = head_dim - d < 16 ? head_dim - d : 16;
    convert_chunk<kDType>(x + d, count, chunk);
    copy_chunk(chunk, count, stride, to + d * stride);
  }
}

// The keys of 16 positions that share vectors.
template <DType kDType, typename Element>
void write_key_group(const float* k, int64_t k_stride, int head_dim, Element* to) {
  for (int d = 0; d < head_dim; d += 16) {
    const int count = head_dim - d < 16 ? head_dim - d : 16;
    V16 rows[16];
    for (int i = 0; i < 16; ++i) rows[i] = load_first(k + i * k_stride + d, count);
    transpose16(rows);
    for (int j = 0; j < count; ++j) {
      float values[16];
      store(values, rows[j]);
      convert_chunk<kDType>(values, 16, to + (d + j) * kKvGroup);
    }
  }
}

// Tokens from `token` on that are written together: 16 if they are those of one group of positions.
int tokens_of_group(const KvWriteArgs& args, int64_t token, int64_t token_end) {
  const int64_t* slots = args.slot_mapping + token;
  if (token_end - token < kKvGroup || slots[0] % kKvGroup != 0) return 1;
  for (int i = 1; i < kKvGroup; ++i) {
    if (slots[i] != slots[0] + i) return 1;
  }
  return kKvGroup;
}

template <DType kDType, typename Element>
void write_tokens(const KvWriteArgs& args, int64_t token_begin, int64_t token_end) {
  const KvLayout& layout = args.cache.layout;
  int tokens = 1;
  for (int64_t token = token_begin; token < token_end; token += tokens) {
    tokens = 1;
    const int64_t slot = args.slot_mapping[token];
    if (slot < 0) continue;
    if constexpr (kDType != DType::kI8) tokens = tokens_of_group(args, token, token_end);
    const int64_t block = slot / layout.block_size;
    const int offset = static_cast<int>(slot % layout.block_size);
    for (int head = 0; head < layout.num_kv_heads; ++head) {
      const float* k = args.k + token * args.k_stride + int64_t{head} * layout.head_dim;
      const float* v = args.v + token * args.v_stride + int64_t{head} * layout.head_dim;
      Element* k_to =
          reinterpret_cast<Element*>(args.cache.k) + layout.k_element(block, head, offset, 0);
      Element* v_to = reinterpret_cast<Element*>(args.cache.v) + layout.v_row(block, head, offset);
      if constexpr (kDType == DType::kI8) {
        const int64_t scale = layout.scale(block, head, offset);
        args.cache.k_scale[scale] = int8_scale(k, layout.head_dim);
        args.cache.v_scale[scale] = int8_scale(v, layout.head_dim);
        write_int8(k, layout.head_dim, args.cache.k_scale[scale], kKvGroup, k_to);
        write_int8(v, layout.head_dim, args.cache.v_scale[scale], 1, v_to);
      } else {
        if (tokens == 1) {
          write_row<kDType>(k, layout.head_dim, kKvGroup, k_to);
        } else {
          write_key_group<kDType>(k, args.k_stride, layout.head_dim, k_to);
        }
        for (int i = 0; i < tokens; ++i) {
          write_row<kDType>(v + i * args.v_stride, layout.head_dim, 1, v_to + i * layout.head_dim);
        }
      }
    }
  }
}

void kv_write(const KvWriteArgs& args, int64_t token_begin, int64_t token_end) {
  switch (args.cache.layout.dtype) {
    case DType::kF16:
      return write_tokens<DType::kF16, uint16_t>(args, token_begin, token_end);
    case DType::kBF16:
      return write_tokens<DType::kBF16, uint16_t>(args, token_begin, token_end);
    case DType::kI8:
      return write_tokens<DType::kI8, int8_t>(args, token_begin, token_end);
    default:
      return write_tokens<DType::kF32, float>(args, token_begin, token_end);
  }
}

// Sums of a row over 16 slots: f(slots, x) joins 16 elements; absent ones are left as they are.
template <typename F>
MR_INLINE float slot_sum(const float* x, int64_t n, F join) {
  V16 slots = zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) slots = join(slots, load(x + i));
  const int tail = static_cast<int>(n - i);
  if (tail > 0) slots = select(mask_first(tail), join(slots, load_first(x + i, tail)), slots);
  return tree16(slots);
}

float sum_values(const float* x, int64_t n) {
  return slot_sum(x, n, [](V16 slots, V16 v) { return slots + v; });
}

void layer_norm(const LayerNormArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* out = args.out + row * args.out_stride;
    const auto n = static_cast<float>(args.n);
    const V16 mean = set1(sum_values(x, args.n) / n);
    const float variance =
        slot_sum(x, args.n, [mean](V16 s, V16 v) { return fma(v - mean, v - mean, s); }) / n;
    const V16 r = set1(1.0f / __builtin_sqrtf(variance + args.eps));
    for (int64_t i = 0; i < args.n; i += 16) {
      const int count = args.n - i < 16 ? static_cast<int>(args.n - i) : 16;
      const V16 scaled = (load_first(x + i, count) - mean) * r;
      const V16 y =
          fma(scaled, load_first(args.weight + i, count), load_first(args.bias + i, count));
      store_first(out + i, round_to(args.dtype, y), count);
    }
  }
}

void round_rows(const RoundArgs& args, int64_t row_begin, int64_t row_end) {
  if (args.dtype == DType::kF32 && args.factor == 1.0f) return;
  const V16 factor = set1(args.factor);
  for (int64_t row = row_begin; row < row_end; ++row) {
    float* x = args.x + row * args.stride;
    for (int64_t i = 0; i < args.n; i += 16) {
      const int count = args.n - i < 16 ? static_cast<int>(args.n - i) : 16;
      store_first(x + i, round_to(args.dtype, load_first(x + i, count) * factor), count);
    }
  }
}

void expert_combine(const ExpertCombineArgs& args, int64_t token, int64_t column_begin,
                    int64_t column_end) {
  const int k = args.experts_per_token;
  const int32_t* experts = args.experts + token * k;
  const int32_t* rows = args.assignments + token * k;
  const float* weights = args.weights + token * k;
  const float* shared = args.shared == nullptr ? nullptr : args.shared + token * args.n;
  float* residual = args.residual + token * args.residual_stride;
  for (int64_t i = column_begin; i < column_end; i += 16) {
    const int count = column_end - i < 16 ? static_cast<int>(column_end - i) : 16;
    V16 level[16];
    for (V16& leaf : level) leaf = zero();
    int leaf = 0;
    for (int a = 0; a < k; ++a) {
      while (experts[a] >= int64_t{args.num_experts} * (leaf + 1) / 16) ++leaf;
      const float* out = args.expert_out + rows[a] * args.n + i;
      level[leaf] = fma(set1(weights[a]), load_first(out, count), level[leaf]);
    }
    for (int width = 8; width >= 1; width /= 2) {
      for (int j = 0; j < width; ++j) level[j] = level[2 * j] + level[2 * j + 1];
    }
    V16 sum = level[0];
    if (shared != nullptr) sum = sum + load_first(shared + i, count);
    const V16 added = load_first(residual + i, count) + round_to(args.dtype, sum);
    store_first(residual + i, round_to(args.dtype, added), count);
  }
}

constexpr RowKernels make_row_kernels(const char* name) {
  return {name,       rms_norm,   rope,       kv_write,      exp_values,
          sum_values, layer_norm, round_rows, expert_combine};
}

}  // namespace
}  // namespace millrace
