// Plans of latent attention and of the indexer: how a step's work is cut into items and shared out.
//
// Pure: depend on the sequences' lengths and the shape only, made once per forward and used by all
// layers. The cut never changes the output's bits (kernels/attention_mla.h, kernels/indexer.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_mla.h"
#include "kernels/indexer.h"

namespace millrace {

// What all layers of a model have in common.
struct MlaShape {
  int num_heads = 0;
  int latent = 0;
  int rope = 0;
  float scale = 0;  // of scores
  // Sparse attention; 0: dense.
  int topk = 0;
  int index_heads = 0;
  int index_dim = 0;
  bool recent_keys = false;  // for tests: the most recent keys in place of the best
};

// Tokens that are taken at once, so that absorbed queries and latent outputs stay bounded: queries
// of all heads are [tokens][heads][latent + rope].
struct MlaRound {
  int64_t token_begin = 0;
  int64_t token_end = 0;
  // Of MlaPlan::items and merges.
  int64_t item_begin = 0;
  int64_t item_end = 0;
  int64_t merge_begin = 0;
  int64_t merge_end = 0;
  double multiply_adds = 0;
  int64_t rows_read = 0;
};

struct MlaPlan {
  std::vector<MlaRound> rounds;
  // Of each round, the costliest first; merges to be run after its items.
  std::vector<MlaItem> items;
  std::vector<MlaMerge> merges;
  int64_t workspace_bytes = 0;
  int64_t scratch_bytes = 0;  // per thread
};

struct IndexPlan {
  std::vector<IndexPack> packs;  // of all tokens that are scored, before the items
  std::vector<IndexItem> items;  // the costliest first
  std::vector<IndexMerge> merges;
  int64_t selection_stride = 0;  // positions that a token can have
  int64_t workspace_bytes = 0;
  int64_t scratch_bytes = 0;
  double multiply_adds = 0;
  int64_t keys_read = 0;
};

struct MlaPlanInput {
  std::span<const AttentionSequence> sequences;  // block tables are not looked at
  MlaShape shape;
  int num_threads = 1;
};

// Both overwrite `plan`, keeping its storage, so that planning allocates nothing once it is warm.
void plan_mla_attention(const MlaPlanInput& input, MlaPlan& plan);
void plan_indexer(const MlaPlanInput& input, IndexPlan& plan);

}  // namespace millrace
