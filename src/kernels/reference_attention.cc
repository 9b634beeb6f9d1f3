#include "kernels/reference_attention.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/math.h"
#include "kernels/reference_ops.h"

namespace millrace {
namespace {

float cache_element(DType dtype, const std::byte* pool, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return reinterpret_cast<const float*>(pool)[index];
    case DType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(pool)[index]);
    case DType::kBF16:
      return bf16_to_f32(reinterpret_cast<const uint16_t*>(pool)[index]);
    case DType::kI8:
      return static_cast<float>(reinterpret_cast<const int8_t*>(pool)[index]);
    default:
      MR_CHECK(false, "no cache of type {}", name_of(dtype));
  }
}

struct CachePosition {
  int64_t block;
  int offset;
};

CachePosition locate(const KvLayout& layout, const AttentionSequence& sequence, int64_t position) {
  return {sequence.block_table[position / layout.block_size],
          static_cast<int>(position % layout.block_size)};
}

float score(const AttentionArgs& args, int kv_head, const float* q, CachePosition at) {
  const KvLayout& layout = args.cache.layout;
  float chain = 0;
  for (int d = 0; d < layout.head_dim; ++d) {
    const int64_t index = layout.k_element(at.block, kv_head, at.offset, d);
    chain = std::fma(q[d], cache_element(layout.dtype, args.cache.k, index), chain);
  }
  if (layout.has_scales()) {
    chain = chain * args.cache.k_scale[layout.scale(at.block, kv_head, at.offset)];
  }
  return chain * args.scale;
}

void add_value(const AttentionArgs& args, int kv_head, float p, CachePosition at,
               std::vector<float>& acc) {
  const KvLayout& layout = args.cache.layout;
  if (layout.has_scales()) {
    p = p * args.cache.v_scale[layout.scale(at.block, kv_head, at.offset)];
  }
  for (int d = 0; d < layout.head_dim; ++d) {
    const int64_t index = layout.v_row(at.block, kv_head, at.offset) + d;
    acc[d] = std::fma(p, cache_element(layout.dtype, args.cache.v, index), acc[d]);
  }
}

}  // namespace

AttentionState reference_attention_leaf(const AttentionArgs& args,
                                        const AttentionSequence& sequence, int kv_head,
                                        const float* q, int64_t position, int leaf) {
  std::vector<int64_t> list;
  for (int64_t p = 0; p <= position; ++p) {
    if (p / 16 % 16 == leaf) list.push_back(p);
  }
  AttentionState state;
  state.m = -std::numeric_limits<float>::infinity();
  state.acc.assign(static_cast<size_t>(args.cache.layout.head_dim), 0.0f);
  std::array<float, 16> slots{};
  for (size_t begin = 0; begin < list.size(); begin += 16) {
    const size_t count = std::min<size_t>(16, list.size() - begin);
    std::array<float, 16> s{};
    float m = state.m;
    for (size_t i = 0; i < count; ++i) {
      s[i] = score(args, kv_head, q, locate(args.cache.layout, sequence, list[begin + i]));
      if (s[i] > m) m = s[i];
    }
    const float c = exp_f32(state.m - m);
    for (float& a : state.acc) a = a * c;
    for (size_t i = 0; i < 16; ++i) {
      const float p = i < count ? exp_f32(s[i] - m) : 0.0f;
      slots[i] = std::fma(slots[i], c, p);
      if (i >= count) continue;
      add_value(args, kv_head, p, locate(args.cache.layout, sequence, list[begin + i]), state.acc);
    }
    state.m = m;
  }
  state.l = reference_tree16(slots.data());
  return state;
}

AttentionState reference_attention_merge(const AttentionState& left, const AttentionState& right) {
  if (left.empty()) return right;
  if (right.empty()) return left;
  AttentionState parent;
  parent.m = left.m > right.m ? left.m : right.m;
  const float c1 = exp_f32(left.m - parent.m);
  const float c2 = exp_f32(right.m - parent.m);
  parent.l = std::fma(right.l, c2, left.l * c1);
  parent.acc.resize(left.acc.size());
  for (size_t d = 0; d < left.acc.size(); ++d) {
    parent.acc[d] = std::fma(right.acc[d], c2, left.acc[d] * c1);
  }
  return parent;
}

AttentionState reference_attention_tree(std::span<const AttentionState> leaves) {
  if (leaves.size() == 1) return leaves[0];
  const size_t half = leaves.size() / 2;
  return reference_attention_merge(reference_attention_tree(leaves.first(half)),
                                   reference_attention_tree(leaves.subspan(half)));
}

void reference_attention(const AttentionArgs& args, int num_sequences) {
  const KvLayout& layout = args.cache.layout;
  const int group = args.num_heads / layout.num_kv_heads;
  for (int i = 0; i < num_sequences; ++i) {
    const AttentionSequence& sequence = args.sequences[i];
    for (int token = 0; token < sequence.query_len; ++token) {
      const int64_t row = sequence.query_start + token;
      for (int head = 0; head < args.num_heads; ++head) {
        const int64_t offset = int64_t{head} * layout.head_dim;
        std::vector<AttentionState> leaves;
        leaves.reserve(16);
        for (int leaf = 0; leaf < 16; ++leaf) {
          leaves.push_back(reference_attention_leaf(args, sequence, head / group,
                                                    args.q + row * args.q_stride + offset,
                                                    sequence.num_computed + token, leaf));
        }
        const AttentionState root = reference_attention_tree(leaves);
        for (int d = 0; d < layout.head_dim; ++d) {
          args.out[row * args.out_stride + offset + d] = round_to(args.dtype, root.acc[d] / root.l);
        }
      }
    }
  }
}

}  // namespace millrace
