#include "kernels/reference_mla.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/math.h"
#include "kernels/reference_ops.h"

namespace millrace {
namespace {

struct CachePosition {
  int64_t block;
  int offset;
};

CachePosition locate(const MlaLayerView& cache, const AttentionSequence& sequence,
                     int64_t position) {
  return {sequence.block_table[position / cache.block_size],
          static_cast<int>(position % cache.block_size)};
}

Bf16Pair to_pair(float first, float second) { return {f32_to_bf16(first), f32_to_bf16(second)}; }

float score(const MlaArgs& args, const float* q, CachePosition at, bool bf16_class) {
  const auto element = [&](int d) {
    return reference_mla_element(args.cache, at.block, at.offset, d);
  };
  float chain = 0;
  const int width = args.cache.latent + args.cache.rope;
  if (bf16_class) {
    for (int d = 0; d < width; d += 2) {
      chain =
          reference_bf16_dot(chain, to_pair(q[d], q[d + 1]), to_pair(element(d), element(d + 1)));
    }
  } else {
    for (int d = 0; d < width; ++d) chain = std::fma(q[d], element(d), chain);
  }
  return chain * args.scale;
}

// Codes of x[0 .. n) with a scale of their own; returns the scale.
float quantise(const float* x, int n, int8_t* codes) {
  float amax = 0;
  for (int d = 0; d < n && !std::isnan(amax); ++d) {
    const float magnitude = std::fabs(x[d]);
    if (!(magnitude <= amax)) amax = magnitude;
  }
  const float scale = amax / 127.0f;
  for (int d = 0; d < n; ++d) {
    codes[d] = 0;
    if (!(scale > 0) || std::isinf(scale)) continue;
    codes[d] = static_cast<int8_t>(std::clamp(std::nearbyint(x[d] / scale), -127.0f, 127.0f));
  }
  return scale;
}

void write_part(const MlaLayerView& cache, const float* x, int n, std::byte* to) {
  for (int d = 0; d < n; ++d) {
    if (cache.dtype == DType::kF32) {
      reinterpret_cast<float*>(to)[d] = x[d];
    } else {
      reinterpret_cast<uint16_t*>(to)[d] =
          cache.dtype == DType::kF16 ? f32_to_f16(x[d]) : f32_to_bf16(x[d]);
    }
  }
}

}  // namespace

float reference_mla_element(const MlaLayerView& cache, int64_t block, int offset, int d) {
  const std::byte* row = cache.row(block, offset);
  switch (cache.dtype) {
    case DType::kF32:
      return reinterpret_cast<const float*>(row)[d];
    case DType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(row)[d]);
    case DType::kBF16:
      return bf16_to_f32(reinterpret_cast<const uint16_t*>(row)[d]);
    case DType::kI8:
      return static_cast<float>(reinterpret_cast<const int8_t*>(row)[d]) *
             cache.scales_of_row(block, offset)[d < cache.latent ? 0 : 1];
    default:
      MR_CHECK(false, "no latent cache of type {}", name_of(cache.dtype));
  }
}

std::vector<int64_t> reference_mla_list(const MlaArgs& args, const MlaQuery& query, int leaf) {
  const LeafSelection& selection = args.selection;
  if (selection.positions != nullptr) {
    const int32_t* begin = selection.leaf_begin + 17 * query.row;
    const int32_t* positions = selection.positions + query.row * selection.stride;
    return {positions + begin[leaf], positions + begin[leaf + 1]};
  }
  std::vector<int64_t> list;
  for (int64_t p = 0; p <= query.position; ++p) {
    if (p / 16 % 16 == leaf) list.push_back(p);
  }
  return list;
}

AttentionState reference_mla_leaf(const MlaArgs& args, const AttentionSequence& sequence,
                                  const MlaQuery& query, int leaf, bool bf16_class) {
  const std::vector<int64_t> list = reference_mla_list(args, query, leaf);
  AttentionState state;
  state.m = -std::numeric_limits<float>::infinity();
  state.acc.assign(static_cast<size_t>(args.cache.latent), 0.0f);
  std::array<float, 16> slots{};
  for (size_t begin = 0; begin < list.size(); begin += 16) {
    const size_t count = std::min<size_t>(16, list.size() - begin);
    std::array<float, 16> s{};
    float m = state.m;
    for (size_t i = 0; i < count; ++i) {
      s[i] = score(args, query.q, locate(args.cache, sequence, list[begin + i]), bf16_class);
      if (s[i] > m) m = s[i];
    }
    const float c = exp_f32(state.m - m);
    for (float& a : state.acc) a = a * c;
    std::array<float, 16> p{};
    for (size_t i = 0; i < 16; ++i) {
      if (i < count) p[i] = exp_f32(s[i] - m);
      slots[i] = std::fma(slots[i], c, p[i]);
    }
    const auto value = [&](size_t i, int d) {
      if (i >= count) return 0.0f;
      const CachePosition at = locate(args.cache, sequence, list[begin + i]);
      return reference_mla_element(args.cache, at.block, at.offset, d);
    };
    for (int d = 0; d < args.cache.latent; ++d) {
      float& acc = state.acc[static_cast<size_t>(d)];
      if (bf16_class) {
        for (size_t i = 0; i < count; i += 2) {
          acc = reference_bf16_dot(acc, to_pair(p[i], p[i + 1]),
                                   to_pair(value(i, d), value(i + 1, d)));
        }
      } else {
        for (size_t i = 0; i < count; ++i) acc = std::fma(p[i], value(i, d), acc);
      }
    }
    state.m = m;
  }
  state.l = reference_tree16(slots.data());
  return state;
}

void reference_mla(const MlaArgs& args, int num_sequences, bool bf16_class) {
  const int latent = args.cache.latent;
  const int width = latent + args.cache.rope;
  for (int i = 0; i < num_sequences; ++i) {
    const AttentionSequence& sequence = args.sequences[i];
    for (int token = 0; token < sequence.query_len; ++token) {
      const int64_t row = sequence.query_start + token;
      for (int head = 0; head < args.num_heads; ++head) {
        const MlaQuery query{args.q + row * args.q_stride + int64_t{head} * width,
                             sequence.num_computed + token, row};
        std::vector<AttentionState> leaves;
        leaves.reserve(16);
        for (int leaf = 0; leaf < 16; ++leaf) {
          leaves.push_back(reference_mla_leaf(args, sequence, query, leaf, bf16_class));
        }
        const AttentionState root = reference_attention_tree(leaves);
        float* out = args.out + row * args.out_stride + int64_t{head} * latent;
        for (int d = 0; d < latent; ++d) out[d] = root.acc[static_cast<size_t>(d)] / root.l;
      }
    }
  }
}

void reference_mla_write(const MlaWriteArgs& args, int64_t token_begin, int64_t token_end) {
  const MlaLayerView& cache = args.cache;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t slot = args.slot_mapping[token];
    if (slot < 0) continue;
    const int64_t block = slot / cache.block_size;
    const int offset = static_cast<int>(slot % cache.block_size);
    const float* latent = args.latent + token * args.latent_stride;
    const float* rope_key = args.rope_key + token * args.rope_stride;
    std::byte* row = cache.row(block, offset);
    if (cache.dtype == DType::kI8) {
      auto* codes = reinterpret_cast<int8_t*>(row);
      float* scales = cache.scales_of_row(block, offset);
      scales[0] = quantise(latent, cache.latent, codes);
      scales[1] = quantise(rope_key, cache.rope, codes + cache.latent);
      continue;
    }
    write_part(cache, latent, cache.latent, row);
    write_part(cache, rope_key, cache.rope, row + cache.latent * size_of(cache.dtype));
  }
}

}  // namespace millrace
