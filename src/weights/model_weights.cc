#include "weights/model_weights.h"

#include "weights/packer.h"
#include "weights/tensor_names.h"

namespace millrace {
namespace {

// Plans the tensors of one model; member functions stand in the order of the forward.
class WeightsPlan {
 public:
  WeightsPlan(const Checkpoint& checkpoint, const ModelConfig& config, Packer& packer)
      : config_(config),
        packer_(packer),
        style_(checkpoint.is_gguf() ? NameStyle::kGguf : NameStyle::kHuggingFace) {}

  Result<> model(ModelWeights& weights) {
    const int64_t hidden = config_.hidden_size;
    MR_TRY(packer_.matrix(tensor_name(style_, ModelTensor::kEmbedding), config_.vocab_size, hidden,
                          &weights.embedding));
    weights.layers.resize(static_cast<size_t>(config_.num_layers));
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      MR_TRY(attention(i, weights.layers[static_cast<size_t>(i)]));
      MR_TRY(mlp(i, weights.layers[static_cast<size_t>(i)]));
    }
    MR_TRY(
        packer_.vector(tensor_name(style_, ModelTensor::kFinalNorm), hidden, &weights.final_norm));
    if (config_.tie_word_embeddings) return {};
    return packer_.matrix(tensor_name(style_, ModelTensor::kHead), config_.vocab_size, hidden,
                          &weights.head);
  }

 private:
  Result<> attention(int64_t i, LayerWeights& layer) {
    const int64_t hidden = config_.hidden_size;
    const int64_t q_size = config_.q_size();
    const int64_t kv_size = config_.kv_size();
    MR_TRY(norm(LayerTensor::kInputNorm, i, hidden, &layer.input_norm));
    MR_TRY(linear(LayerTensor::kQ, i, {q_size, hidden, config_.qkv_bias}, layer.gqa.q));
    MR_TRY(linear(LayerTensor::kK, i, {kv_size, hidden, config_.qkv_bias}, layer.gqa.k));
    MR_TRY(linear(LayerTensor::kV, i, {kv_size, hidden, config_.qkv_bias}, layer.gqa.v));
    if (config_.qk_norm) {
      MR_TRY(norm(LayerTensor::kQNorm, i, config_.head_dim, &layer.gqa.q_norm));
      MR_TRY(norm(LayerTensor::kKNorm, i, config_.head_dim, &layer.gqa.k_norm));
    }
    return linear(LayerTensor::kO, i, {hidden, q_size, config_.o_bias}, layer.gqa.o);
  }

  Result<> mlp(int64_t i, LayerWeights& layer) {
    const int64_t hidden = config_.hidden_size;
    const int64_t columns = config_.intermediate_size;
    MR_TRY(norm(LayerTensor::kPostAttentionNorm, i, hidden, &layer.post_attention_norm));
    MR_TRY(linear(LayerTensor::kGate, i, {columns, hidden, config_.mlp_bias}, layer.mlp.gate));
    MR_TRY(linear(LayerTensor::kUp, i, {columns, hidden, config_.mlp_bias}, layer.mlp.up));
    return linear(LayerTensor::kDown, i, {hidden, columns, config_.mlp_bias}, layer.mlp.down);
  }

  Result<> norm(LayerTensor tensor, int64_t i, int64_t size, const float** target) {
    return packer_.vector(tensor_name(style_, tensor, i), size, target);
  }

  struct LinearShape {
    int64_t outputs;
    int64_t inputs;
    bool bias;
  };
  Result<> linear(LayerTensor tensor, int64_t i, LinearShape shape, Linear& target) {
    MR_TRY(packer_.matrix(tensor_name(style_, tensor, i), shape.outputs, shape.inputs,
                          &target.matrix));
    if (!shape.bias) return {};
    return packer_.vector(tensor_name(style_, tensor, i, "bias"), shape.outputs, &target.bias);
  }

  const ModelConfig& config_;
  Packer& packer_;
  const NameStyle style_;
};

// A bias or norm that the configuration does not tell of would be left out of the arithmetic.
Result<> check_rest(const Checkpoint& checkpoint, const ModelConfig& config, const Packer& packer) {
  const NameStyle style = checkpoint.is_gguf() ? NameStyle::kGguf : NameStyle::kHuggingFace;
  const std::string head = tensor_name(style, ModelTensor::kHead);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (packer.takes(tensor) || is_constant(name) || !is_in_decoder(style, name)) continue;
    // Some exports store the tied matrix twice.
    if (config.tie_word_embeddings && name == head) continue;
    return fail(
        "tensor {} is there, but the configuration has no place for it, and without it the model "
        "may compute something else; check {}",
        name,
        checkpoint.is_gguf() ? "the file's architecture and block_count"
                             : "num_hidden_layers, attention_bias and mlp_bias in config.json");
  }
  return {};
}

}  // namespace

Result<ModelWeights> load_model_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                        ThreadTeam& team, Progress& progress) {
  ModelWeights weights;
  Packer packer(checkpoint);
  if (auto planned = WeightsPlan(checkpoint, config, packer).model(weights); !planned) {
    return fail_in(checkpoint.path(), planned.error());
  }
  if (auto checked = check_rest(checkpoint, config, packer); !checked) {
    return fail_in(checkpoint.path(), checked.error());
  }
  auto storage = packer.run(team, progress);
  if (!storage) return fail_in(checkpoint.path(), storage.error());
  weights.storage = std::move(*storage);
  if (config.tie_word_embeddings) weights.head = weights.embedding;
  return weights;
}

}  // namespace millrace
