#include "kernels/reference_indexer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace millrace {
namespace {

float row_scale(const float* row, int n) {
  float amax = 0;
  for (int d = 0; d < n; ++d) {
    const float magnitude = std::fabs(row[d]);
    if (std::isnan(magnitude)) return magnitude / 127.0f;
    if (magnitude > amax) amax = magnitude;
  }
  return amax / 127.0f;
}

int code_of(float value, float scale) {
  if (!(scale > 0) || std::isinf(scale)) return 0;
  const float code = std::nearbyint(value / scale);
  return static_cast<int>(std::clamp(code, -127.0f, 127.0f));
}

// Element d of the key at `lane` of a group; an int8 code without its 128.
float key_element(DType dtype, const std::byte* group, int d, int lane) {
  if (dtype == DType::kI8) {
    const auto* codes = reinterpret_cast<const uint8_t*>(group);
    return static_cast<float>(codes[d / 4 * 64 + lane * 4 + d % 4]) - 128.0f;
  }
  if (dtype == DType::kBF16) {
    return bf16_to_f32(reinterpret_cast<const uint16_t*>(group)[d * 16 + lane]);
  }
  return reinterpret_cast<const float*>(group)[d * 16 + lane];
}

// NaN and -0 stay as they are.
float relu(float x) { return 0.0f > x ? 0.0f : x; }

float score_float(const IndexerArgs& args, int64_t row, const std::byte* group, int lane) {
  const int dim = args.cache.index_dim;
  float score = 0;
  for (int head = 0; head < args.num_heads; ++head) {
    const float* q = args.q + row * args.q_stride + int64_t{head} * dim;
    float dot = 0;
    for (int d = 0; d < dim; ++d) {
      dot = std::fma(q[d], key_element(args.cache.index_dtype, group, d, lane), dot);
    }
    score = std::fma(args.weights[row * args.weights_stride + head],
                     relu(dot * index_score_scale(dim)), score);
  }
  return score;
}

// A query quantised: codes and scales of its heads.
struct Int8Query {
  std::vector<int> codes;
  std::vector<float> scales;
};
Int8Query quantise_query(const IndexerArgs& args, int64_t row) {
  const int dim = args.cache.index_dim;
  Int8Query query;
  for (int head = 0; head < args.num_heads; ++head) {
    const float* q = args.q + row * args.q_stride + int64_t{head} * dim;
    query.scales.push_back(row_scale(q, dim));
    for (int d = 0; d < dim; ++d) query.codes.push_back(code_of(q[d], query.scales.back()));
  }
  return query;
}

float score_int8(const IndexerArgs& args, int64_t row, const Int8Query& query,
                 const std::byte* group, int lane, float key_scale) {
  const int dim = args.cache.index_dim;
  const auto* codes = reinterpret_cast<const uint8_t*>(group);
  float acc = 0;
  for (int head = 0; head < args.num_heads; ++head) {
    const int* q = query.codes.data() + int64_t{head} * dim;
    int dot = 0;
    for (int d = 0; d < dim; ++d) {
      dot += q[d] * (codes[d / 4 * 64 + lane * 4 + d % 4] - 128);
    }
    const float weight = args.weights[row * args.weights_stride + head];
    const float coefficient =
        (weight * index_score_scale(dim)) * query.scales[static_cast<size_t>(head)];
    acc = std::fma(coefficient, relu(static_cast<float>(dot)), acc);
  }
  return acc * key_scale;
}

}  // namespace

std::vector<float> reference_index_scores(const IndexerArgs& args,
                                          const AttentionSequence& sequence, int token) {
  const MlaLayerView& cache = args.cache;
  const int64_t row = sequence.query_start + token;
  const bool is_int8 = cache.index_dtype == DType::kI8;
  const Int8Query query = is_int8 ? quantise_query(args, row) : Int8Query{};
  std::vector<float> scores;
  for (int64_t p = 0; p <= sequence.num_computed + token; ++p) {
    const int64_t block = sequence.block_table[p / cache.block_size];
    const int lane = static_cast<int>(p % cache.block_size) % 16;
    const int offset = static_cast<int>(p % cache.block_size) - lane;
    const std::byte* group = cache.index_group(block, offset);
    scores.push_back(is_int8 ? score_int8(args, row, query, group, lane,
                                          cache.scales_of_index_group(block, offset)[lane])
                             : score_float(args, row, group, lane));
  }
  return scores;
}

std::vector<int32_t> reference_topk(const std::vector<float>& scores, int k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&scores](int32_t p) {
    const float score = scores[static_cast<size_t>(p)];
    return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return value(a) > value(b); });
  order.resize(std::min(order.size(), static_cast<size_t>(k)));
  std::sort(order.begin(), order.end());
  return order;
}

void reference_write_selection(const IndexerArgs& args, int64_t row,
                               const std::vector<int32_t>& positions) {
  int32_t* to = args.positions + row * args.selection_stride;
  int32_t* leaf_begin = args.leaf_begin + row * 17;
  int32_t count = 0;
  for (int leaf = 0; leaf < 16; ++leaf) {
    leaf_begin[leaf] = count;
    for (const int32_t p : positions) {
      if (p / 16 % 16 == leaf) to[count++] = p;
    }
  }
  leaf_begin[16] = count;
}

void reference_indexer(const IndexerArgs& args, int num_sequences) {
  for (int s = 0; s < num_sequences; ++s) {
    const AttentionSequence& sequence = args.sequences[s];
    for (int token = 0; token < sequence.query_len; ++token) {
      const auto scores = reference_index_scores(args, sequence, token);
      reference_write_selection(args, sequence.query_start + token,
                                reference_topk(scores, args.topk));
    }
  }
}

void reference_index_write(const IndexWriteArgs& args, int64_t token_begin, int64_t token_end) {
  const MlaLayerView& cache = args.cache;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t slot = args.slot_mapping[token];
    if (slot < 0) continue;
    const int64_t block = slot / cache.block_size;
    const int lane = static_cast<int>(slot % cache.block_size) % 16;
    const int offset = static_cast<int>(slot % cache.block_size) - lane;
    std::byte* group = cache.index_group(block, offset);
    const float* key = args.key + token * args.key_stride;
    const float scale = row_scale(key, cache.index_dim);
    if (cache.index_dtype == DType::kI8) {
      cache.scales_of_index_group(block, offset)[lane] = scale;
    }
    for (int d = 0; d < cache.index_dim; ++d) {
      if (cache.index_dtype == DType::kI8) {
        reinterpret_cast<uint8_t*>(group)[d / 4 * 64 + lane * 4 + d % 4] =
            static_cast<uint8_t>(code_of(key[d], scale) + 128);
      } else if (cache.index_dtype == DType::kBF16) {
        reinterpret_cast<uint16_t*>(group)[d * 16 + lane] = f32_to_bf16(key[d]);
      } else {
        reinterpret_cast<float*>(group)[d * 16 + lane] = key[d];
      }
    }
  }
}

}  // namespace millrace
