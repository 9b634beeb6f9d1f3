// For tests and benchmarks of the indexer: sequences with queries and index keys in a paged cache
// whose blocks are shuffled and whose unused slots are poisoned.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/reference_indexer.h"
#include "tensor/mla_layout.h"

namespace millrace {

struct IndexerCase {
  int num_heads = 4;
  int dim = 32;
  int topk = 16;
  int block_size = 16;
  DType dtype = DType::kI8;
  // One sequence each: tokens computed before, and queries.
  std::vector<std::pair<int64_t, int32_t>> lengths;
  // Elements are drawn from -levels .. levels, so that scores tie; 0: from a normal distribution.
  int levels = 0;
};

class IndexerFixture {
 public:
  explicit IndexerFixture(const IndexerCase& c) : generator_(42), levels_(c.levels) {
    int64_t blocks = 3;  // a few that no sequence owns
    int64_t queries = 0;
    int64_t longest = 0;
    for (const auto& [computed, query_len] : c.lengths) {
      blocks += (computed + query_len + c.block_size - 1) / c.block_size;
      queries += query_len;
      longest = std::max(longest, computed + query_len);
    }
    const MlaLayout layout = MlaLayout::make({.dtype = DType::kF32,
                                              .index_dtype = c.dtype,
                                              .block_size = c.block_size,
                                              .latent = 3,
                                              .rope = 2,
                                              .index_dim = c.dim},
                                             {1, 1});
    // All ones: NaN as floats and scales, and the greatest code.
    const auto pool_bytes = static_cast<size_t>(layout.block_bytes * blocks);
    memory_.assign(pool_bytes + 64, std::byte{0xff});
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    pool = std::span(memory_).subspan((64 - address % 64) % 64, pool_bytes);
    args.cache = mla_layer_view(layout, 1, pool.data(), blocks);
    table_.resize(static_cast<size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), generator_);
    place(c);
    const int64_t width = int64_t{c.num_heads} * c.dim;
    args.q_stride = width + 5;
    args.weights_stride = c.num_heads + 1;
    args.selection_stride = std::min<int64_t>(c.topk, longest) + 2;
    q = draw(queries * args.q_stride);
    weights = draw(queries * args.weights_stride);
    positions.assign(static_cast<size_t>(queries * args.selection_stride), -7);
    leaf_begin.assign(static_cast<size_t>(queries * 17), -7);
    args.num_heads = c.num_heads;
    args.topk = c.topk;
    point();
  }
  IndexerFixture(const IndexerFixture&) = delete;
  IndexerFixture& operator=(const IndexerFixture&) = delete;

  // Writes all keys to the cache again, after a change of `keys`.
  void write_keys() {
    const int64_t tokens = static_cast<int64_t>(slots.size());
    reference_index_write({keys.data(), args.cache.index_dim, slots.data(), args.cache}, 0, tokens);
  }

  std::vector<float> draw(int64_t count) {
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> level(-levels_, levels_);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& x : values) {
      x = levels_ > 0 ? static_cast<float>(level(generator_)) : normal(generator_);
    }
    return values;
  }

  void clear_selection() {
    std::fill(positions.begin(), positions.end(), -7);
    std::fill(leaf_begin.begin(), leaf_begin.end(), -7);
  }

  std::vector<AttentionSequence> sequences;
  std::vector<int64_t> slots;  // of all positions of all sequences
  std::vector<float> keys;     // [slots][dim], before rounding
  std::vector<float> q;
  std::vector<float> weights;
  std::vector<int32_t> positions;
  std::vector<int32_t> leaf_begin;
  std::span<std::byte> pool;  // of two layers, of which the second is used
  IndexerArgs args;

 private:
  void place(const IndexerCase& c) {
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
    keys = draw(static_cast<int64_t>(slots.size()) * c.dim);
    write_keys();
  }

  void point() {
    args.q = q.data();
    args.weights = weights.data();
    args.sequences = sequences.data();
    args.positions = positions.data();
    args.leaf_begin = leaf_begin.data();
  }

  std::mt19937 generator_;
  int levels_;
  std::vector<std::byte> memory_;
  std::vector<int32_t> table_;
};

}  // namespace millrace
