// Golden models with the names and shapes that llama.cpp's converters write give the same weights
// as the models themselves.
#include <gtest/gtest.h>

#include <cstring>

#include "weights/model_weights.h"
#include "weights/test_models.h"

namespace millrace {
namespace {

using testing::ChangedModel;
using testing::GgufBuilder;
using testing::load_weights;
using testing::TempFolder;
using testing::values_of;

using Tensor = ChangedModel::Tensor;

// Type numbers of the format.
uint32_t gguf_type(DType dtype) { return dtype == DType::kF32 ? 0 : dtype == DType::kF16 ? 1 : 30; }

std::vector<uint64_t> gguf_dims(const std::vector<int64_t>& shape) {
  return {shape.rbegin(), shape.rend()};
}

// Names without ".weight", of a layer.
const std::map<std::string, std::string> kLayerNames = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.indexer.wq_b", "indexer.attn_q_b"},
    {"self_attn.indexer.wk", "indexer.attn_k"},
    {"self_attn.indexer.k_norm", "indexer.k_norm"},
    {"self_attn.indexer.weights_proj", "indexer.proj"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
};

class GgufModel {
 public:
  GgufModel(const std::string& golden, const ModelConfig& config)
      : model_(golden), config_(config) {}

  // Everything outside of the layers, and all layers.
  void write_all() {
    copy("model.embed_tokens.weight", "token_embd.weight");
    copy("model.norm.weight", "output_norm.weight");
    copy("lm_head.weight", "output.weight");
    for (int i = 0; i < config_.num_layers; ++i) write_layer(i);
  }

  Result<Checkpoint> open() {
    folder_.write("model.gguf", builder_.build());
    return Checkpoint::open(folder_.file("model.gguf"));
  }

  ChangedModel& model() { return model_; }
  bool old_kv_b = false;  // written in one piece, as Q8_0
  GgufBuilder& builder() { return builder_; }

 private:
  void copy(const std::string& from, const std::string& to) {
    const auto it = model_.tensors.find(from);
    if (it == model_.tensors.end()) return;
    builder_.tensor(to, gguf_type(it->second.dtype), gguf_dims(it->second.shape), it->second.bytes);
  }

  void write_layer(int i) {
    const std::string from = fmt::format("model.layers.{}.", i);
    const std::string to = fmt::format("blk.{}.", i);
    for (const auto& [hf, gguf] : kLayerNames) {
      copy(from + hf + ".weight", to + gguf + ".weight");
      copy(from + hf + ".bias", to + gguf + ".bias");
    }
    const bool glm4 = config_.architecture == Architecture::kGlm4Moe;
    copy(from + "post_attention_layernorm.weight",
         to + (glm4 ? "post_attention_norm.weight" : "ffn_norm.weight"));
    copy(from + "mlp.gate.e_score_correction_bias", to + "exp_probs_b.bias");
    for (const char* name : {"gate", "up", "down"}) merge_experts(from, to, name);
    if (config_.mla) write_kv_b(from + "self_attn.kv_b_proj.weight", to);
  }

  void merge_experts(const std::string& from, const std::string& to, const std::string& name) {
    Tensor merged;
    for (int e = 0; e < config_.moe->num_experts; ++e) {
      const auto it =
          model_.tensors.find(fmt::format("{}mlp.experts.{}.{}_proj.weight", from, e, name));
      if (it == model_.tensors.end()) return;
      const Tensor& expert = it->second;
      merged.dtype = expert.dtype;
      merged.shape = {config_.moe->num_experts, expert.shape[0], expert.shape[1]};
      merged.bytes.insert(merged.bytes.end(), expert.bytes.begin(), expert.bytes.end());
    }
    builder_.tensor(to + "ffn_" + name + "_exps.weight", gguf_type(merged.dtype),
                    gguf_dims(merged.shape), merged.bytes);
  }

  // 16-bit weights.
  void write_kv_b(const std::string& from, const std::string& to) {
    const Tensor& kv_b = model_.tensors.at(from);
    const auto heads = static_cast<size_t>(config_.num_heads);
    const auto nope = static_cast<size_t>(config_.mla->qk_nope_head_dim);
    const auto v = static_cast<size_t>(config_.mla->v_head_dim);
    const auto latent = static_cast<size_t>(config_.mla->kv_lora_rank);
    if (old_kv_b) {
      builder_.tensor(to + "attn_kv_b.weight", 8, {latent, heads * (nope + v)},
                      heads * (nope + v) * latent / 32 * 34);
      return;
    }
    std::vector<std::byte> keys(heads * nope * latent * 2);
    std::vector<std::byte> values;
    for (size_t head = 0; head < heads; ++head) {
      const std::byte* rows = kv_b.bytes.data() + head * (nope + v) * latent * 2;
      for (size_t d = 0; d < nope; ++d) {
        for (size_t c = 0; c < latent; ++c) {
          std::memcpy(keys.data() + ((head * latent + c) * nope + d) * 2,
                      rows + (d * latent + c) * 2, 2);
        }
      }
      values.insert(values.end(), rows + nope * latent * 2, rows + (nope + v) * latent * 2);
    }
    builder_.tensor(to + "attn_k_b.weight", gguf_type(kv_b.dtype), {nope, latent, heads}, keys);
    builder_.tensor(to + "attn_v_b.weight", gguf_type(kv_b.dtype), {latent, v, heads}, values);
  }

  ChangedModel model_;
  const ModelConfig& config_;
  GgufBuilder builder_;
  TempFolder folder_;
};

void expect_same(const PackedMatrix& a, const PackedMatrix& b) {
  ASSERT_EQ(a.n, b.n);
  ASSERT_EQ(a.k, b.k);
  EXPECT_EQ(a.kind, b.kind);
  if (a.n == 0) return;
  EXPECT_EQ(std::memcmp(a.panels, b.panels, static_cast<size_t>(a.total_bytes())), 0);
}

class GgufGoldens : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto source = Checkpoint::open(testing::golden_folder(GetParam()));
    ASSERT_TRUE(source) << source.error().message;
    config_ = *read_model_config(*source);
    auto expected = load_weights(*source, config_);
    ASSERT_TRUE(expected) << expected.error().message;
    expected_ = std::move(*expected);
  }

  ModelConfig config_;
  ModelWeights expected_;
};

TEST_P(GgufGoldens, AreTheSameWeights) {
  GgufModel model(GetParam(), config_);
  model.write_all();
  const auto checkpoint = model.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto weights = load_weights(*checkpoint, config_);
  ASSERT_TRUE(weights) << weights.error().message;
  expect_same(weights->head, expected_.head);
  ASSERT_EQ(weights->total_bytes(), expected_.total_bytes());
  for (int i = 0; i < config_.num_layers; ++i) {
    const LayerWeights& a = weights->layers[static_cast<size_t>(i)];
    const LayerWeights& b = expected_.layers[static_cast<size_t>(i)];
    ASSERT_EQ(a.mla.k_up.size(), b.mla.k_up.size());
    for (size_t head = 0; head < a.mla.k_up.size(); ++head) {
      expect_same(a.mla.k_up[head], b.mla.k_up[head]);
      expect_same(a.mla.v_up[head], b.mla.v_up[head]);
    }
    ASSERT_EQ(a.moe.gate.size(), b.moe.gate.size());
    for (size_t e = 0; e < a.moe.gate.size(); ++e) {
      expect_same(a.moe.gate[e], b.moe.gate[e]);
      expect_same(a.moe.up[e], b.moe.up[e]);
      expect_same(a.moe.down[e], b.moe.down[e]);
    }
    const auto linears = [](const LayerWeights& w) {
      return std::vector<PackedMatrix>{w.gqa.q.matrix,
                                       w.gqa.k.matrix,
                                       w.gqa.v.matrix,
                                       w.gqa.o.matrix,
                                       w.mla.q_a.matrix,
                                       w.mla.q_b.matrix,
                                       w.mla.kv_a.matrix,
                                       w.mla.o.matrix,
                                       w.mla.indexer.q.matrix,
                                       w.mla.indexer.k.matrix,
                                       w.mla.indexer.head_weights.matrix,
                                       w.mlp.gate.matrix,
                                       w.mlp.up.matrix,
                                       w.mlp.down.matrix,
                                       w.moe.router.matrix,
                                       w.moe.shared.gate.matrix,
                                       w.moe.shared.up.matrix,
                                       w.moe.shared.down.matrix};
    };
    for (size_t m = 0; m < linears(a).size(); ++m) expect_same(linears(a)[m], linears(b)[m]);
    const auto vectors = [](const LayerWeights& w) {
      return std::vector<const float*>{w.input_norm,         w.post_attention_norm,
                                       w.gqa.q_norm,         w.gqa.k.bias,
                                       w.mla.q_a_norm,       w.mla.kv_a_norm,
                                       w.mla.indexer.k_norm, w.mla.indexer.k_norm_bias,
                                       w.moe.correction_bias};
    };
    for (size_t m = 0; m < vectors(a).size(); ++m) {
      ASSERT_EQ(vectors(a)[m] == nullptr, vectors(b)[m] == nullptr);
      // Eight elements are in all of them.
      if (vectors(a)[m] != nullptr) {
        EXPECT_EQ(std::memcmp(vectors(a)[m], vectors(b)[m], 32), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufGoldens,
                         ::testing::Values("deepseek_v3", "deepseek_v3_no_q_lora", "deepseek_v32",
                                           "glm_moe_dsa_shared", "glm_moe_dsa_fp16", "glm4_moe",
                                           "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

class GgufLatentAttention : public GgufGoldens {};

TEST_P(GgufLatentAttention, QuantisedKvBInOnePieceIsExpandedForItsKeyHalf) {
  GgufModel model(GetParam(), config_);
  model.old_kv_b = true;
  model.write_all();
  // A half besides, which then is not read.
  model.builder().tensor("blk.1.attn_k_b.weight", 0, {24, 32 * 4}, 4 * 32 * 24 * 4);
  const auto checkpoint = model.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto weights = load_weights(*checkpoint, config_);
  ASSERT_TRUE(weights) << weights.error().message;
  const std::vector<float> kv_b = values_of(*checkpoint, "blk.1.attn_kv_b.weight");
  const auto nope = static_cast<size_t>(config_.mla->qk_nope_head_dim);
  const auto v = static_cast<size_t>(config_.mla->v_head_dim);
  const auto latent = static_cast<size_t>(config_.mla->kv_lora_rank);
  const MlaWeights& mla = weights->layers[1].mla;
  for (size_t head = 0; head < mla.k_up.size(); ++head) {
    EXPECT_EQ(mla.k_up[head].kind, PackedKind::kF32);
    EXPECT_EQ(mla.v_up[head].kind, PackedKind::kQuantised);
    const std::vector<float> keys = values_of(mla.k_up[head]);
    const std::vector<float> values = values_of(mla.v_up[head]);
    const float* rows = kv_b.data() + head * (nope + v) * latent;
    for (size_t c = 0; c < latent; ++c) {
      for (size_t d = 0; d < nope; ++d) {
        EXPECT_EQ(std::memcmp(&keys[c * nope + d], &rows[d * latent + c], 4), 0);
      }
    }
    EXPECT_EQ(std::memcmp(values.data(), rows + nope * latent, v * latent * 4), 0);
  }
}

TEST_P(GgufLatentAttention, MissingAndMisshapenTensorsAreNamed) {
  GgufModel missing(GetParam(), config_);
  missing.model().tensors.erase("model.layers.1.mlp.experts.5.up_proj.weight");
  missing.write_all();
  auto checkpoint = missing.open();
  auto weights = load_weights(*checkpoint, config_);
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find("tensor blk.1.ffn_up_exps.weight is missing; the "
                                         "configuration asks for one of shape [8, 32, 64]"),
            std::string::npos)
      << weights.error().message;
  GgufModel extra(GetParam(), config_);
  extra.write_all();
  extra.builder().tensor("blk.4.nextn.eh_proj.weight", 0, {128, 64}, 32768);
  checkpoint = extra.open();
  EXPECT_TRUE(load_weights(*checkpoint, config_));
  extra.builder().tensor("blk.1.attn_sinks.weight", 0, {64}, 256);
  checkpoint = extra.open();
  EXPECT_FALSE(load_weights(*checkpoint, config_));
}

INSTANTIATE_TEST_SUITE_P(All, GgufLatentAttention, ::testing::Values("deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millrace
