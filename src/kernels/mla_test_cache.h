// For tests of latent attention: sequences with random queries and rows in a paged cache whose
// blocks are shuffled and whose unused slots are poisoned, and random selections.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/reference_mla.h"
#include "tensor/mla_layout.h"

namespace millrace {

struct MlaCase {
  int latent = 64;
  int rope = 16;
  int num_heads = 3;
  int block_size = 16;
  DType cache_dtype = DType::kF16;
  // One sequence each: tokens computed before, and queries.
  std::vector<std::pair<int64_t, int32_t>> lengths;
  int64_t selected = 0;    // positions of each token's selection; 0: dense
  float magnitude = 1.0f;  // standard deviation of queries
};

class MlaFixture {
 public:
  explicit MlaFixture(const MlaCase& c) : generator_(42) {
    MlaLayout layout;
    layout.dtype = c.cache_dtype;
    layout.block_size = c.block_size;
    layout.latent = c.latent;
    layout.rope = c.rope;
    layout = MlaLayout::make(layout, {0, 0});
    int64_t blocks = 3;  // a few that no sequence owns
    int64_t queries = 0;
    for (const auto& [computed, query_len] : c.lengths) {
      blocks += (computed + query_len + c.block_size - 1) / c.block_size;
      queries += query_len;
    }
    // All ones: NaN in f32, f16, bf16 and in the scales.
    memory_.assign(static_cast<size_t>(layout.block_bytes * blocks) + 64, std::byte{0xff});
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    args.cache = mla_layer_view(layout, 1, memory_.data() + (64 - address % 64) % 64, blocks);
    table_.resize(static_cast<size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), generator_);
    fill(c);
    std::normal_distribution<float> normal(0.0f, c.magnitude);
    const int64_t q_width = int64_t{c.num_heads} * (c.latent + c.rope);
    const int64_t out_width = int64_t{c.num_heads} * c.latent;
    q.resize(static_cast<size_t>(queries * (q_width + 5)));
    for (float& x : q) x = normal(generator_);
    out.assign(static_cast<size_t>(queries * (out_width + 3)), -7.0f);
    args.q = q.data();
    args.q_stride = q_width + 5;
    args.out = out.data();
    args.out_stride = out_width + 3;
    args.num_heads = c.num_heads;
    args.scale = 1.0f / std::sqrt(static_cast<float>(c.latent + c.rope));
    args.sequences = sequences.data();
    if (c.selected > 0) select(c.selected);
  }

  // Gives each token a selection of `count` of its positions (all if it sees fewer).
  void select(int64_t count) {
    stride_ = count + 3;
    positions_.clear();
    leaf_begin_.clear();
    for (const AttentionSequence& sequence : sequences) {
      for (int token = 0; token < sequence.query_len; ++token) {
        add_selection(sequence.num_computed + token + 1, count);
      }
    }
    args.selection = {positions_.data(), stride_, leaf_begin_.data()};
  }

  std::vector<AttentionSequence> sequences;
  std::vector<float> q;
  std::vector<float> out;
  std::vector<float> latents;  // [positions of all sequences][latent], before rounding
  std::vector<float> rope_keys;
  MlaArgs args;

 private:
  void fill(const MlaCase& c) {
    std::normal_distribution<float> normal(0.0f, 1.0f);
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
    latents.resize(slots.size() * static_cast<size_t>(c.latent));
    rope_keys.resize(slots.size() * static_cast<size_t>(c.rope));
    for (float& x : latents) x = normal(generator_);
    for (float& x : rope_keys) x = 3.0f * normal(generator_);
    reference_mla_write(
        {latents.data(), c.latent, rope_keys.data(), c.rope, slots.data(), args.cache}, 0,
        static_cast<int64_t>(slots.size()));
  }

  void add_selection(int64_t visible, int64_t count) {
    std::vector<int32_t> chosen(static_cast<size_t>(visible));
    std::iota(chosen.begin(), chosen.end(), 0);
    std::shuffle(chosen.begin(), chosen.end(), generator_);
    chosen.resize(static_cast<size_t>(std::min(visible, count)));
    std::sort(chosen.begin(), chosen.end());
    std::vector<int32_t> row;
    for (int leaf = 0; leaf < 16; ++leaf) {
      leaf_begin_.push_back(static_cast<int32_t>(row.size()));
      for (const int32_t p : chosen) {
        if (p / 16 % 16 == leaf) row.push_back(p);
      }
    }
    leaf_begin_.push_back(static_cast<int32_t>(row.size()));
    row.resize(static_cast<size_t>(stride_), INT32_MAX);
    positions_.insert(positions_.end(), row.begin(), row.end());
  }

  std::mt19937 generator_;
  std::vector<std::byte> memory_;
  std::vector<int32_t> table_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> leaf_begin_;
  int64_t stride_ = 0;
};

}  // namespace millrace
