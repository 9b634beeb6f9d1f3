// The GQA strategy: plans once per forward, records one layer's attention from that plan.
#pragma once

#include <span>

#include "attention/gqa_plan.h"
#include "base/buffer.h"
#include "base/error.h"
#include "kernels/attention_gqa.h"
#include "kernels/isa.h"
#include "kernels/kv_layout.h"
#include "program/program.h"

namespace millrace {

// What all GQA layers of a model have in common.
struct GqaShape {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  float scale = 0;            // of scores
  DType dtype = DType::kF32;  // activations are rounded to it
};

// One layer's operands: q and out are [rows of the planned queries][stride], heads side by side.
struct GqaOperands {
  const float* q = nullptr;
  int64_t q_stride = 0;
  KvLayerView cache;
  float* out = nullptr;
  int64_t out_stride = 0;
};

class GqaAttention {
 public:
  GqaAttention(const GqaShape& shape, Isa isa) : shape_(shape), isa_(isa) {}

  // Cuts the work of these queries into items; to be called once per forward, before record(). The
  // sequences must live until the program has run. The workspace is kept and grows to the largest
  // step; error: no memory for it.
  Result<> plan(std::span<const AttentionSequence> sequences, int num_threads);

  // Records scores, softmax and weighted sum of one layer. K and V of the step's tokens must have
  // been written to the cache by earlier steps.
  void record(Program& program, const GqaOperands& operands);

 private:
  GqaShape shape_;
  Isa isa_;
  std::span<const AttentionSequence> sequences_;
  GqaPlan plan_;
  Buffer workspace_;
};

}  // namespace millrace
