// A model: records its forward as a program over a batch of tokens.
#pragma once

#include <memory>

#include "attention/forward_batch.h"
#include "base/error.h"
#include "config/engine_config.h"
#include "config/model_config.h"
#include "kernels/isa.h"
#include "kernels/kv_layout.h"
#include "kernels/mla_cache.h"
#include "program/arena.h"
#include "program/program.h"

namespace millrace {

// How a model computes: decided once at load, the same for all layers.
struct Execution {
  Isa isa = Isa::kPortable;
  DType dtype = DType::kF32;      // activations are rounded to it at the rounding points
  bool int8_activations = false;  // for quantised weights
  bool bf16_class = false;        // bf16 weights and latents in the class bf16
  int num_threads = 1;
  bool recent_keys = false;  // for tests: sparse attention takes the most recent keys
};

// Where a forward is recorded, and on what.
struct ForwardScope {
  Program& program;
  Arena& arena;
  const ForwardBatch& batch;
  // One a layer; the kind that the model's cache_layout() asks for.
  std::span<const KvLayerView> cache;
  std::span<const MlaLayerView> mla_cache;
  // If not null: [num_layers][num_tokens][hidden], receives the residual stream after each layer.
  float* hidden_dump = nullptr;
  // If not null: [num_layers][num_tokens][index_topk], receives the positions that each token
  // attends to in each layer, ascending, then -1.
  int32_t* topk_dump = nullptr;
};

class Model {
 public:
  virtual ~Model() = default;

  // Records one forward; the result points at the logits, [batch.num_logits][vocab_size] in the
  // arena, that the program will have written when it has run. Error: no memory for a plan.
  virtual Result<const float*> record(const ForwardScope& scope) = 0;

  virtual const ModelConfig& config() const = 0;
  virtual const Execution& execution() const = 0;
};

}  // namespace millrace
