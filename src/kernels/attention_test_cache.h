// For tests and benchmarks of attention: sequences with random queries, keys and values in a paged
// cache whose blocks are shuffled and whose unused rows are poisoned.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/attention_gqa.h"
#include "kernels/reference_ops.h"

namespace millrace {

struct AttentionCase {
  int head_dim = 64;
  int num_kv_heads = 2;
  int group = 3;
  int block_size = 16;
  DType cache_dtype = DType::kF16;
  DType dtype = DType::kF32;
  // One sequence each: tokens computed before, and queries.
  std::vector<std::pair<int64_t, int32_t>> lengths;
  float magnitude = 1.0f;  // standard deviation of queries
};

class AttentionFixture {
 public:
  explicit AttentionFixture(const AttentionCase& c) {
    std::mt19937 generator(42);
    int64_t blocks = 3;  // a few that no sequence owns
    int64_t queries = 0;
    for (const auto& [computed, query_len] : c.lengths) {
      blocks += (computed + query_len + c.block_size - 1) / c.block_size;
      queries += query_len;
    }
    const KvLayout layout{c.cache_dtype, c.block_size, c.num_kv_heads, c.head_dim};
    const int64_t bytes = layout.block_bytes() * blocks;
    // All ones: NaN in f32, f16, bf16 and in the scales.
    memory_.assign(static_cast<size_t>(bytes) + 64, std::byte{0xff});
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    cache = kv_layer_view(layout, 0, memory_.data() + (64 - address % 64) % 64);
    std::vector<int32_t> order(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), generator);
    table_ = order;
    fill(c, generator);
    std::normal_distribution<float> normal(0.0f, c.magnitude);
    const int64_t width = int64_t{c.num_kv_heads} * c.group * c.head_dim;
    q.resize(static_cast<size_t>(queries * (width + 5)));
    for (float& x : q) x = round_to(c.dtype, normal(generator));
    out.assign(static_cast<size_t>(queries * (width + 3)), -7.0f);
    args.q = q.data();
    args.q_stride = width + 5;
    args.out = out.data();
    args.out_stride = width + 3;
    args.num_heads = c.num_kv_heads * c.group;
    args.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    args.dtype = c.dtype;
    args.cache = cache;
    args.sequences = sequences.data();
  }

  // Writes NaN over the keys and values of the first sequence from `position` on.
  void poison(int64_t position) {
    const KvLayout& layout = cache.layout;
    const int64_t width = int64_t{layout.num_kv_heads} * layout.head_dim;
    const std::vector<float> nan(static_cast<size_t>(width), NAN);
    const AttentionSequence& sequence = sequences[0];
    for (int64_t p = position; p < sequence.num_computed + sequence.query_len; ++p) {
      const int64_t slot =
          int64_t{sequence.block_table[p / layout.block_size]} * layout.block_size +
          p % layout.block_size;
      reference_kv_write({nan.data(), width, nan.data(), width, &slot, cache}, 0, 1);
    }
  }

  KvLayerView cache;
  std::vector<AttentionSequence> sequences;
  std::vector<float> q;
  std::vector<float> out;
  std::vector<float> k;  // [positions of all sequences][kv heads * head_dim], before rounding
  std::vector<float> v;
  AttentionArgs args;

 private:
  void fill(const AttentionCase& c, std::mt19937& generator) {
    std::normal_distribution<float> normal(0.0f, 1.0f);
    const int64_t width = int64_t{c.num_kv_heads} * c.head_dim;
    std::vector<int64_t> slots;
    int64_t query_start = 0;
    int64_t used = 0;
    for (const auto& [computed, query_len] : c.lengths) {
      const int64_t length = computed + query_len;
      const int32_t* table = table_.data() + used;
      sequences.push_back({query_start, query_len, computed, table});
      for (int64_t p = 0; p < length; ++p) {
        slots.push_back(int64_t{table[p / c.block_size]} * c.block_size + p % c.block_size);
      }
      used += (length + c.block_size - 1) / c.block_size;
      query_start += query_len;
    }
    k.resize(slots.size() * static_cast<size_t>(width));
    v.resize(k.size());
    for (float& x : k) x = normal(generator);
    for (float& x : v) x = normal(generator);
    reference_kv_write({k.data(), width, v.data(), width, slots.data(), cache}, 0,
                       static_cast<int64_t>(slots.size()));
  }

  std::vector<std::byte> memory_;
  std::vector<int32_t> table_;
};

}  // namespace millrace
