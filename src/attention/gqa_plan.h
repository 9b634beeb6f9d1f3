// Plan of grouped-query attention: how a step's work is cut into items and shared out.
//
// Pure: depends on the sequences' lengths and the shape only, made once per forward for all
// layers of that shape (a second time for the last one, if it has fewer queries). The cut never
// changes the output's bits (kernels/attention_gqa.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_gqa.h"

namespace millrace {

struct GqaPlanInput {
  std::span<const AttentionSequence> sequences;  // block tables are not looked at
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int num_threads = 1;
};

struct GqaPlan {
  // To be claimed one by one, in this order (the costliest first).
  std::vector<AttentionItem> items;
  // To be run after all items are done; empty if no item is split over leaves.
  std::vector<AttentionMerge> merges;
  int64_t workspace_bytes = 0;
  int64_t scratch_bytes = 0;   // per thread
  double multiply_adds = 0;    // of one layer
  int64_t positions_read = 0;  // rows of K and of V that must be read at least once, per kv head
};

// Overwrites `plan`, keeping its storage, so that planning allocates nothing once it is warm.
void plan_gqa_attention(const GqaPlanInput& input, GqaPlan& plan);

}  // namespace millrace
