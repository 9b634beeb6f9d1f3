#include "weights/weights_plan.h"

#include "base/check.h"

namespace millrace {
namespace {

// Member functions stand in the order of the forward.
class Plan {
 public:
  Plan(const ModelConfig& config, WeightSink& sink)
      : config_(config), sink_(sink), style_(sink.style()) {}

  Result<> model(ModelWeights& weights) {
    const MatrixShape vocabulary{config_.vocab_size, config_.hidden_size};
    MR_TRY(
        sink_.matrix(module_name(style_, ModelTensor::kEmbedding), vocabulary, &weights.embedding));
    weights.layers.resize(static_cast<size_t>(config_.num_layers));
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
      MR_TRY(norm(LayerTensor::kInputNorm, i, config_.hidden_size, &layer.input_norm));
      MR_TRY(config_.mla ? latent_attention(i, layer.mla) : grouped_attention(i, layer.gqa));
      MR_TRY(norm(post_attention_norm(i), i, config_.hidden_size, &layer.post_attention_norm));
      const bool sparse = config_.moe && config_.moe->is_sparse[static_cast<size_t>(i)] != 0;
      MR_TRY(sparse ? experts(i, layer.moe) : mlp(i, kDense, config_.intermediate_size, layer.mlp));
    }
    MR_TRY(sink_.vector(tensor_name(style_, ModelTensor::kFinalNorm), config_.hidden_size,
                        &weights.final_norm));
    if (config_.tie_word_embeddings) return {};
    return sink_.matrix(module_name(style_, ModelTensor::kHead), vocabulary, &weights.head);
  }

 private:
  struct MlpNames {
    LayerTensor gate, up, down;
  };
  static constexpr MlpNames kDense{LayerTensor::kGate, LayerTensor::kUp, LayerTensor::kDown};
  static constexpr MlpNames kShared{LayerTensor::kSharedGate, LayerTensor::kSharedUp,
                                    LayerTensor::kSharedDown};

  Result<> grouped_attention(int64_t i, GqaWeights& gqa) {
    const int64_t hidden = config_.hidden_size;
    const int64_t q_size = config_.q_size();
    const int64_t kv_size = config_.kv_size();
    MR_TRY(linear(LayerTensor::kQ, i, {q_size, hidden}, config_.qkv_bias, gqa.q));
    MR_TRY(linear(LayerTensor::kK, i, {kv_size, hidden}, config_.qkv_bias, gqa.k));
    MR_TRY(linear(LayerTensor::kV, i, {kv_size, hidden}, config_.qkv_bias, gqa.v));
    if (config_.qk_norm) {
      MR_TRY(norm(LayerTensor::kQNorm, i, config_.head_dim, &gqa.q_norm));
      MR_TRY(norm(LayerTensor::kKNorm, i, config_.head_dim, &gqa.k_norm));
    }
    return linear(LayerTensor::kO, i, {hidden, q_size}, config_.o_bias, gqa.o);
  }

  Result<> latent_attention(int64_t i, MlaWeights& mla) {
    const MlaConfig& sizes = *config_.mla;
    const int64_t hidden = config_.hidden_size;
    const int64_t q_size = int64_t{config_.num_heads} * sizes.qk_head_dim();
    if (sizes.q_lora_rank > 0) {
      MR_TRY(linear(LayerTensor::kQA, i, {sizes.q_lora_rank, hidden}, config_.qkv_bias, mla.q_a));
      MR_TRY(norm(LayerTensor::kQANorm, i, sizes.q_lora_rank, &mla.q_a_norm));
      MR_TRY(linear(LayerTensor::kQB, i, {q_size, sizes.q_lora_rank}, false, mla.q_b));
    } else {
      MR_TRY(linear(LayerTensor::kQ, i, {q_size, hidden}, false, mla.q_b));
    }
    MR_TRY(linear(LayerTensor::kKvA, i, {sizes.row_size(), hidden}, config_.qkv_bias, mla.kv_a));
    MR_TRY(norm(LayerTensor::kKvANorm, i, sizes.kv_lora_rank, &mla.kv_a_norm));
    MR_TRY(latent_up(i, mla));
    MR_TRY(linear(LayerTensor::kO, i, {hidden, config_.o_size()}, config_.o_bias, mla.o));
    if (!config_.indexer || config_.indexer->is_full[static_cast<size_t>(i)] == 0) return {};
    return indexer(i, mla.indexer);
  }

  Result<> latent_up(int64_t i, MlaWeights& mla) {
    const MlaConfig& sizes = *config_.mla;
    const KvUpShape shape{.heads = config_.num_heads,
                          .nope = sizes.qk_nope_head_dim,
                          .v = sizes.v_head_dim,
                          .latent = sizes.kv_lora_rank};
    mla.k_up.resize(static_cast<size_t>(shape.heads));
    mla.v_up.resize(static_cast<size_t>(shape.heads));
    // GGUF files have the halves apart, the first one transposed already; older ones do not.
    if (style_ == NameStyle::kGguf && !sink_.has(tensor_name(style_, LayerTensor::kKvB, i))) {
      MR_TRY(sink_.matrices(module_name(style_, LayerTensor::kKUp, i), {shape.latent, shape.nope},
                            mla.k_up));
      return sink_.matrices(module_name(style_, LayerTensor::kVUp, i), {shape.v, shape.latent},
                            mla.v_up);
    }
    return sink_.kv_up(module_name(style_, LayerTensor::kKvB, i), shape, mla.k_up, mla.v_up);
  }

  Result<> indexer(int64_t i, IndexerWeights& indexer) {
    const IndexerConfig& sizes = *config_.indexer;
    const int64_t hidden = config_.hidden_size;
    const int64_t q_size = int64_t{sizes.num_heads} * sizes.head_dim;
    MR_TRY(linear(LayerTensor::kIndexerQ, i, {q_size, config_.mla->q_lora_rank}, false, indexer.q));
    MR_TRY(linear(LayerTensor::kIndexerK, i, {sizes.head_dim, hidden}, false, indexer.k));
    MR_TRY(linear(LayerTensor::kIndexerHeadWeights, i, {sizes.num_heads, hidden}, false,
                  indexer.head_weights));
    MR_TRY(norm(LayerTensor::kIndexerKNorm, i, sizes.head_dim, &indexer.k_norm));
    return sink_.vector(tensor_name(style_, LayerTensor::kIndexerKNorm, i, "bias"), sizes.head_dim,
                        &indexer.k_norm_bias);
  }

  LayerTensor post_attention_norm(int64_t i) const {
    const bool glm4 = style_ == NameStyle::kGguf &&
                      config_.architecture == Architecture::kGlm4Moe &&
                      !sink_.has(tensor_name(style_, LayerTensor::kPostAttentionNorm, i));
    return glm4 ? LayerTensor::kPostAttentionNormGlm4 : LayerTensor::kPostAttentionNorm;
  }

  Result<> mlp(int64_t i, MlpNames names, int64_t columns, MlpWeights& mlp) {
    const int64_t hidden = config_.hidden_size;
    MR_TRY(linear(names.gate, i, {columns, hidden}, config_.mlp_bias, mlp.gate));
    MR_TRY(linear(names.up, i, {columns, hidden}, config_.mlp_bias, mlp.up));
    return linear(names.down, i, {hidden, columns}, config_.mlp_bias, mlp.down);
  }

  Result<> experts(int64_t i, MoeWeights& moe) {
    const MoeConfig& sizes = *config_.moe;
    const int64_t hidden = config_.hidden_size;
    const int64_t columns = sizes.intermediate_size;
    MR_TRY(sink_.matrix_f32(module_name(style_, LayerTensor::kRouter, i),
                            {sizes.num_experts, hidden}, &moe.router.matrix));
    if (sizes.correction_bias) {
      MR_TRY(
          sink_.vector(correction_bias_name(style_, i), sizes.num_experts, &moe.correction_bias));
    }
    for (auto* matrices : {&moe.gate, &moe.up, &moe.down}) {
      matrices->resize(static_cast<size_t>(sizes.num_experts));
    }
    if (style_ == NameStyle::kGguf) {
      MR_TRY(merged(LayerTensor::kExpertsGate, i, {columns, hidden}, moe.gate));
      MR_TRY(merged(LayerTensor::kExpertsUp, i, {columns, hidden}, moe.up));
      MR_TRY(merged(LayerTensor::kExpertsDown, i, {hidden, columns}, moe.down));
    } else {
      for (int64_t e = 0; e < sizes.num_experts; ++e) {
        const auto index = static_cast<size_t>(e);
        MR_TRY(sink_.matrix(expert_module_name(LayerTensor::kGate, i, e), {columns, hidden},
                            &moe.gate[index]));
        MR_TRY(sink_.matrix(expert_module_name(LayerTensor::kUp, i, e), {columns, hidden},
                            &moe.up[index]));
        MR_TRY(sink_.matrix(expert_module_name(LayerTensor::kDown, i, e), {hidden, columns},
                            &moe.down[index]));
      }
    }
    if (sizes.shared_intermediate_size == 0) return {};
    return mlp(i, kShared, sizes.shared_intermediate_size, moe.shared);
  }

  Result<> merged(LayerTensor tensor, int64_t i, MatrixShape shape,
                  std::vector<PackedMatrix>& targets) {
    return sink_.matrices(module_name(style_, tensor, i), shape, targets);
  }

  Result<> norm(LayerTensor tensor, int64_t i, int64_t size, const float** target) {
    return sink_.vector(tensor_name(style_, tensor, i), size, target);
  }

  Result<> linear(LayerTensor tensor, int64_t i, MatrixShape shape, bool bias, Linear& target) {
    MR_TRY(sink_.matrix(module_name(style_, tensor, i), shape, &target.matrix));
    if (!bias) return {};
    return sink_.vector(tensor_name(style_, tensor, i, "bias"), shape.n, &target.bias);
  }

  const ModelConfig& config_;
  WeightSink& sink_;
  const NameStyle style_;
};

// Adds up elements.
class ParameterCounter : public WeightSink {
 public:
  int64_t count() const { return count_; }

  NameStyle style() const override { return NameStyle::kHuggingFace; }
  bool has(const std::string&) const override { return false; }
  Result<> matrix(const std::string&, MatrixShape shape, PackedMatrix*) override {
    count_ += shape.n * shape.k;
    return {};
  }
  Result<> matrix_f32(const std::string& module, MatrixShape shape, PackedMatrix* target) override {
    return matrix(module, shape, target);
  }
  Result<> matrices(const std::string&, MatrixShape shape,
                    std::vector<PackedMatrix>& targets) override {
    count_ += static_cast<int64_t>(targets.size()) * shape.n * shape.k;
    return {};
  }
  Result<> kv_up(const std::string&, KvUpShape shape, std::vector<PackedMatrix>&,
                 std::vector<PackedMatrix>&) override {
    count_ += shape.heads * (shape.nope + shape.v) * shape.latent;
    return {};
  }
  Result<> vector(const std::string&, int64_t size, const float**) override {
    count_ += size;
    return {};
  }

 private:
  int64_t count_ = 0;
};

}  // namespace

int64_t num_parameters(const ModelConfig& config) {
  ModelWeights weights;
  ParameterCounter counter;
  MR_CHECK(plan_weights(config, counter, weights), "a counter has no errors");
  return counter.count();
}

Result<> plan_weights(const ModelConfig& config, WeightSink& sink, ModelWeights& weights) {
  return Plan(config, sink).model(weights);
}

}  // namespace millrace
