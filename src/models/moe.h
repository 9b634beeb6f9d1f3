// A mixture of experts as steps of a forward: router, experts on the tokens routed to them, shared
// expert, weighted sum (DeepSeekMoE; the router: kernels/router.h, the sum:
// kernels/expert_combine.h).
#pragma once

#include <optional>
#include <vector>

#include "kernels/grouped_matmul.h"
#include "models/layers.h"

namespace millrace {

// What all mixtures of a model share.
struct MoeShape {
  const MoeConfig* config = nullptr;
  LeafCuts expert_leaves;  // inputs of an expert's down projection
  LeafCuts shared_leaves;  // of the shared expert's
  // Multiplies the chosen experts' weights: routed_scaling_factor, or 1 where the residual stream
  // is carried divided by it; then `leaf_scale` is the reciprocal, and scales the shared expert.
  float routed_scale = 1.0f;
  float leaf_scale = 1.0f;
};

// One layer's mixture. Holds views; the weights and the shape must outlive it.
class MoeBlock {
 public:
  MoeBlock(const MoeWeights& weights, const MoeShape& shape, const Execution& execution);

  // x += sum of experts(norm(x)) + shared expert(norm(x)). Tokens are taken in rounds, so that the
  // workspace stays bounded.
  void record(LayerRecorder& layers, const LayerRecorder::Norm& norm, const Rows& x) const;

 private:
  // Which experts the tokens of a round go to; arrays in the arena, written when the step runs.
  struct Routing {
    int64_t assignments = 0;     // tokens * experts_per_token
    int32_t* experts = nullptr;  // [tokens][experts_per_token]
    float* weights = nullptr;    // likewise
    RowGroups* groups = nullptr;
    int32_t* row_of = nullptr;         // [assignments], as GroupRowsArgs
    int32_t* assignment_of = nullptr;  // [assignments]
  };

  void record_round(LayerRecorder& layers, const LayerRecorder::Norm& norm, const Rows& x) const;
  Routing record_routing(LayerRecorder& layers, const PackedRows& x) const;
  // The experts' outputs of the normed rows h, sorted by expert: [assignments][hidden], not
  // rounded.
  Rows record_experts(LayerRecorder& layers, const Rows& h, const Routing& routing) const;
  GroupedMatmulArgs gate_up(ActivationKind kind) const;
  GroupedMatmulArgs down(ActivationKind kind) const;

  const MoeWeights& weights_;
  const MoeShape& shape_;
  const Execution& execution_;
  ActivationKind gate_kind_;
  ActivationKind down_kind_;
  int64_t scratch_bytes_ = 0;  // of the grouped matmuls
};

// The shape of a model's mixtures; empty without one. `residual_divisor`: what the residual stream
// is divided by (1, or routed_scaling_factor). The configuration must outlive it.
MoeShape moe_shape(const ModelConfig& config, float residual_divisor);

// A block for each sparse layer, nothing for dense ones.
std::vector<std::optional<MoeBlock>> moe_blocks(const ModelWeights& weights, const MoeShape& shape,
                                                const Execution& execution);

}  // namespace millrace
