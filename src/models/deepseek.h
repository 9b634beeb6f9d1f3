// Decoders with latent attention: DeepSeek-V3 (dense attention), DeepSeek-V3.2 and GLM-5 (DSA).
#pragma once

#include <optional>
#include <vector>

#include "attention/mla_attention.h"
#include "config/leaf_axes.h"
#include "models/mla.h"
#include "models/model.h"
#include "models/moe.h"
#include "weights/model_weights.h"

namespace millrace {

// A pre-norm decoder of latent attention, dense MLPs in the first layers and mixtures of experts in
// the others (DeepSeek-V3 and V3.2 technical reports; GLM-5). Owns its weights.
//
// With float16 activations the residual stream is carried divided by routed_scaling_factor, so that
// it does not overflow (docs/numerics.md, "f16 overflow protection").
class DeepseekModel final : public Model {
 public:
  DeepseekModel(const ModelConfig& config, const Execution& execution, ModelWeights weights);

  Result<const float*> record(const ForwardScope& scope) override;
  const ModelConfig& config() const override { return config_; }
  const Execution& execution() const override { return execution_; }

 private:
  MlaForward begin(LayerRecorder& layers);
  // Reads all tokens' x; adds to the rows of `to`, x or a selection of it.
  void attention(LayerRecorder& layers, MlaForward& forward, int64_t index, const Rows& x,
                 const Rows& to);
  void feed_forward(LayerRecorder& layers, int64_t index, const Rows& x);

  const ModelConfig config_;
  const Execution execution_;
  const LeafAxes leaves_;
  const std::vector<float> inv_freq_;
  const float divisor_;     // of the residual stream
  const float scaled_eps_;  // of norms over the divided stream
  ModelWeights weights_;
  Linear head_;
  MlaAttention mla_;
  std::vector<MlaBlock> attention_;  // by layer
  MoeShape moe_shape_;
  std::vector<std::optional<MoeBlock>> moe_;  // by layer; none in dense ones
};

}  // namespace millrace
