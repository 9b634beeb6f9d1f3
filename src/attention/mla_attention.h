// The latent attention strategy, dense or sparse: plans once per forward, records the indexer's
// choice of keys and one layer's attention from that plan.
#pragma once

#include "attention/forward_batch.h"
#include "attention/mla_plan.h"
#include "base/buffer.h"
#include "base/error.h"
#include "program/program.h"

namespace millrace {

// The operands of a layer's indexer: [num_tokens][stride].
struct IndexOperands {
  const float* q = nullptr;
  int64_t q_stride = 0;
  const float* weights = nullptr;
  int64_t weights_stride = 0;
  std::byte* packed_q = nullptr;  // room for [num_tokens][index_query_bytes]
  MlaLayerView cache;
};

// Where a selection is kept from one full layer to the next: sizes from selection_stride().
struct SelectionRows {
  int32_t* positions = nullptr;   // [num_tokens][selection_stride]
  int32_t* leaf_begin = nullptr;  // [num_tokens][17]
};

// The operands of a round of a layer's attention; rows are the round's tokens.
struct MlaOperands {
  const float* q = nullptr;  // absorbed; [tokens][heads][latent + rope]
  float* out = nullptr;      // [tokens][heads][latent], not rounded
  MlaLayerView cache;
  SelectionRows selection;  // of all tokens of the batch; null positions: dense
};

class MlaAttention {
 public:
  // bf16_class: bf16 caches by bf16 dot products (mla_kernels).
  MlaAttention(const MlaShape& shape, Isa isa, bool bf16_class)
      : shape_(shape), isa_(isa), bf16_class_(bf16_class) {}

  // Cuts the step's work into items; to be called once per forward, before recording. The batch
  // must live until the program has run. Workspaces are kept and grow to the largest step; error:
  // no memory for them.
  Result<> plan(const ForwardBatch& batch, int num_threads);

  const MlaShape& shape() const { return shape_; }
  std::span<const MlaRound> rounds() const { return plan_.rounds; }
  int64_t selection_stride() const { return index_plan_.selection_stride; }

  // Index keys of the step's tokens must have been written to the cache by earlier steps.
  void record_indexer(Program& program, const IndexOperands& operands, const SelectionRows& out);

  // Scores, softmax and weighted sum. Rows of the step's tokens must have been written.
  void record(Program& program, const MlaRound& round, const MlaOperands& operands);

 private:
  MlaShape shape_;
  Isa isa_;
  bool bf16_class_;
  const ForwardBatch* batch_ = nullptr;
  MlaPlan plan_;
  IndexPlan index_plan_;
  Buffer workspace_;
  Buffer index_workspace_;
};

}  // namespace millrace
