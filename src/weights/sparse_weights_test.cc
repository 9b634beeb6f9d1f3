// Weights of models with latent attention, indexers and experts.
#include <gtest/gtest.h>

#include "weights/model_weights.h"
#include "weights/tensor_names.h"
#include "weights/test_models.h"

namespace millrace {
namespace {

using testing::ChangedModel;
using testing::golden_folder;
using testing::load_weights;
using testing::values_of;

class SparseGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto checkpoint = Checkpoint::open(golden_folder(GetParam()));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*checkpoint));
    auto config = read_model_config(*checkpoint_);
    ASSERT_TRUE(config) << config.error().message;
    config_ = *config;
    auto weights = load_weights(*checkpoint_, config_, 3);
    ASSERT_TRUE(weights) << weights.error().message;
    weights_ = std::move(*weights);
  }

  void expect_matrix(const PackedMatrix& matrix, const std::string& module) {
    ASSERT_GT(matrix.n, 0) << module;
    EXPECT_EQ(values_of(matrix), values_of(*checkpoint_, module + ".weight")) << module;
  }
  void expect_vector(const float* vector, const std::string& name) {
    const std::vector<float> expected = values_of(*checkpoint_, name);
    ASSERT_FALSE(expected.empty()) << name;
    ASSERT_NE(vector, nullptr) << name;
    EXPECT_EQ(std::vector<float>(vector, vector + expected.size()), expected) << name;
  }

  void expect_latent_attention(const MlaWeights& mla, const std::string& prefix, bool indexer);
  void expect_experts(const MoeWeights& moe, const std::string& prefix);

  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
  ModelWeights weights_;
};

void SparseGoldens::expect_latent_attention(const MlaWeights& mla, const std::string& prefix,
                                            bool indexer) {
  const MlaConfig& sizes = *config_.mla;
  if (sizes.q_lora_rank > 0) {
    expect_matrix(mla.q_a.matrix, prefix + "q_a_proj");
    expect_vector(mla.q_a_norm, prefix + "q_a_layernorm.weight");
    expect_matrix(mla.q_b.matrix, prefix + "q_b_proj");
  } else {
    EXPECT_EQ(mla.q_a.matrix.n, 0);
    expect_matrix(mla.q_b.matrix, prefix + "q_proj");
  }
  expect_matrix(mla.kv_a.matrix, prefix + "kv_a_proj_with_mqa");
  expect_vector(mla.kv_a_norm, prefix + "kv_a_layernorm.weight");
  expect_matrix(mla.o.matrix, prefix + "o_proj");
  const std::vector<float> kv_b = values_of(*checkpoint_, prefix + "kv_b_proj.weight");
  const int nope = sizes.qk_nope_head_dim;
  const int latent = sizes.kv_lora_rank;
  ASSERT_EQ(mla.k_up.size(), static_cast<size_t>(config_.num_heads));
  ASSERT_EQ(mla.v_up.size(), mla.k_up.size());
  for (int head = 0; head < config_.num_heads; ++head) {
    const PackedMatrix& k_up = mla.k_up[static_cast<size_t>(head)];
    const PackedMatrix& v_up = mla.v_up[static_cast<size_t>(head)];
    ASSERT_EQ(k_up.n, latent);
    ASSERT_EQ(k_up.k, nope);
    ASSERT_EQ(v_up.n, sizes.v_head_dim);
    EXPECT_NE(k_up.kind, PackedKind::kF32) << "16-bit weights stay 16 bits";
    const float* rows = kv_b.data() + head * (nope + sizes.v_head_dim) * latent;
    const std::vector<float> keys = values_of(k_up);
    for (int c = 0; c < latent; ++c) {
      for (int d = 0; d < nope; ++d) {
        ASSERT_EQ(keys[static_cast<size_t>(c * nope + d)], rows[d * latent + c]);
      }
    }
    rows += nope * latent;
    EXPECT_EQ(values_of(v_up), std::vector<float>(rows, rows + sizes.v_head_dim * latent));
  }
  if (!indexer) {
    EXPECT_EQ(mla.indexer.q.matrix.n, 0);
    return;
  }
  expect_matrix(mla.indexer.q.matrix, prefix + "indexer.wq_b");
  expect_matrix(mla.indexer.k.matrix, prefix + "indexer.wk");
  expect_matrix(mla.indexer.head_weights.matrix, prefix + "indexer.weights_proj");
  expect_vector(mla.indexer.k_norm, prefix + "indexer.k_norm.weight");
  expect_vector(mla.indexer.k_norm_bias, prefix + "indexer.k_norm.bias");
}

void SparseGoldens::expect_experts(const MoeWeights& moe, const std::string& prefix) {
  const MoeConfig& sizes = *config_.moe;
  EXPECT_EQ(moe.router.matrix.kind, PackedKind::kF32);
  expect_matrix(moe.router.matrix, prefix + "gate");
  if (sizes.correction_bias) {
    expect_vector(moe.correction_bias, prefix + "gate.e_score_correction_bias");
  } else {
    EXPECT_EQ(moe.correction_bias, nullptr);
  }
  ASSERT_EQ(moe.down.size(), static_cast<size_t>(sizes.num_experts));
  for (int e = 0; e < sizes.num_experts; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", prefix, e);
    expect_matrix(moe.gate[static_cast<size_t>(e)], expert + "gate_proj");
    expect_matrix(moe.up[static_cast<size_t>(e)], expert + "up_proj");
    expect_matrix(moe.down[static_cast<size_t>(e)], expert + "down_proj");
  }
  if (sizes.shared_intermediate_size == 0) {
    EXPECT_EQ(moe.shared.gate.matrix.n, 0);
    return;
  }
  expect_matrix(moe.shared.gate.matrix, prefix + "shared_experts.gate_proj");
  expect_matrix(moe.shared.up.matrix, prefix + "shared_experts.up_proj");
  expect_matrix(moe.shared.down.matrix, prefix + "shared_experts.down_proj");
}

TEST_P(SparseGoldens, EveryWeightIsTheCheckpoints) {
  for (int i = 0; i < config_.num_layers; ++i) {
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(i)];
    const std::string prefix = fmt::format("model.layers.{}.", i);
    expect_vector(layer.input_norm, prefix + "input_layernorm.weight");
    expect_vector(layer.post_attention_norm, prefix + "post_attention_layernorm.weight");
    if (config_.mla) {
      const bool indexer = config_.indexer && config_.indexer->is_full[static_cast<size_t>(i)] != 0;
      expect_latent_attention(layer.mla, prefix + "self_attn.", indexer);
    } else {
      expect_matrix(layer.gqa.q.matrix, prefix + "self_attn.q_proj");
      EXPECT_EQ(layer.gqa.q.bias != nullptr, config_.qkv_bias);
      EXPECT_EQ(layer.gqa.q_norm != nullptr, config_.qk_norm);
    }
    if (config_.moe->is_sparse[static_cast<size_t>(i)] != 0) {
      expect_experts(layer.moe, prefix + "mlp.");
      EXPECT_EQ(layer.mlp.gate.matrix.n, 0);
    } else {
      expect_matrix(layer.mlp.down.matrix, prefix + "mlp.down_proj");
      EXPECT_TRUE(layer.moe.gate.empty());
    }
  }
}

TEST_P(SparseGoldens, PackedBytesAreKnownBefore) {
  const auto bytes = packed_bytes(*checkpoint_, config_);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(*bytes, weights_.total_bytes());
}

INSTANTIATE_TEST_SUITE_P(All, SparseGoldens,
                         ::testing::Values("deepseek_v3", "deepseek_v3_no_q_lora", "deepseek_v32",
                                           "glm_moe_dsa_full", "glm_moe_dsa_shared",
                                           "glm_moe_dsa_fp16", "glm_moe_dsa_sharded_mtp",
                                           "glm4_moe", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SparseWeights, ErrorsNameTheTensor) {
  for (const char* name :
       {"model.layers.0.self_attn.q_a_proj.weight",
        "model.layers.0.self_attn.kv_a_layernorm.weight",
        "model.layers.3.self_attn.kv_b_proj.weight", "model.layers.2.self_attn.indexer.wk.weight",
        "model.layers.2.self_attn.indexer.k_norm.bias", "model.layers.1.mlp.gate.weight",
        "model.layers.1.mlp.gate.e_score_correction_bias",
        "model.layers.1.mlp.experts.7.up_proj.weight",
        "model.layers.1.mlp.shared_experts.down_proj.weight"}) {
    ChangedModel model("glm_moe_dsa_full");
    model.tensors.erase(name);
    EXPECT_TRUE(model.error().starts_with(fmt::format("tensor {} is missing; ", name)))
        << model.error();
    model.zeros(name, DType::kBF16, {3, 5});
    EXPECT_TRUE(model.error().starts_with(fmt::format("tensor {} has shape [3, 5]; ", name)))
        << model.error();
  }
}

TEST(SparseWeights, KnownExtrasLoadAndUnknownOnesDoNot) {
  ChangedModel model("glm_moe_dsa_shared");
  // Layers 2 and 3 share a selection; layer 6 is beyond the last one.
  model.zeros("model.layers.2.self_attn.indexer.wk.weight", DType::kBF16, {32, 64});
  model.zeros("model.layers.3.self_attn.indexer.k_norm.bias", DType::kBF16, {32});
  model.zeros("model.layers.6.eh_proj.weight", DType::kBF16, {64, 128});
  model.zeros("model.layers.6.shared_head.head.weight", DType::kBF16, {320, 64});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(model.error(), "");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("not used: layers of multi-token prediction (6) and indexers of layers that "
                     "share another's selection (2, 3)\n"),
            std::string::npos)
      << log;
  for (const char* name :
       {"model.layers.2.self_attn.indexer_norm.weight",
        "model.layers.1.mlp.experts.8.up_proj.weight", "model.layers.1.self_attn.q_a_proj.bias",
        "model.layers.0.mlp.gate.weight", "model.layers.7.input_layernorm.weight"}) {
    ChangedModel unknown("glm_moe_dsa_shared");
    unknown.zeros(name, DType::kBF16, {64});
    EXPECT_TRUE(unknown.error().starts_with(fmt::format("tensor {} is there, but ", name)))
        << unknown.error();
  }
  // One layer too few in the configuration is no layer of multi-token prediction.
  for (const char* golden : {"deepseek_v3", "glm4_moe"}) {
    ChangedModel cut_off(golden);
    cut_off.config["num_hidden_layers"] = 3;
    EXPECT_TRUE(cut_off.error().starts_with("tensor model.layers.3.")) << cut_off.error();
  }
  ChangedModel grouped("qwen3_moe");
  grouped.zeros("model.layers.4.input_layernorm.weight", DType::kBF16, {64});
  EXPECT_TRUE(grouped.error().starts_with("tensor model.layers.4.input_layernorm.weight is there"))
      << grouped.error();
}

}  // namespace
}  // namespace millrace
