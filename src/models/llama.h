// Decoders with grouped-query attention: Llama, SmolLM2, Qwen2 (biases on q, k, v), Qwen3 (norm of
// q and k heads), and with a mixture of experts Qwen3-MoE and GLM-4.5.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "attention/gqa_attention.h"
#include "config/leaf_axes.h"
#include "models/layers.h"
#include "models/model.h"
#include "models/moe.h"
#include "weights/model_weights.h"

namespace millrace {

// A pre-norm decoder with grouped-query attention and a gated MLP or a mixture of experts (Touvron
// et al. 2023; Qwen2, Qwen3 and GLM-4.5 technical reports). Owns its weights.
class LlamaModel final : public Model {
 public:
  LlamaModel(const ModelConfig& config, const Execution& execution, ModelWeights weights);

  Result<const float*> record(const ForwardScope& scope) override;
  const ModelConfig& config() const override { return config_; }
  const Execution& execution() const override { return execution_; }

 private:
  // Reads all tokens' x; adds to the rows of `to`, x or a selection of it.
  void attention(LayerRecorder& layers, int64_t index, LayerRecorder::RopeTable table,
                 const Rows& x, const Rows& to);
  void feed_forward(LayerRecorder& layers, int64_t index, const Rows& x);

  const ModelConfig config_;
  const Execution execution_;
  const LeafAxes leaves_;
  const std::vector<float> inv_freq_;
  ModelWeights weights_;
  Linear head_;
  GqaAttention gqa_;         // of all tokens' queries
  GqaAttention logits_gqa_;  // of those that need logits
  MoeShape moe_shape_;
  std::vector<std::optional<MoeBlock>> moe_;  // by layer; none in dense ones
};

}  // namespace millrace
