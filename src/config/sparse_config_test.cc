// config.json of sparse models: the goldens' files, published models, and what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "config/model_config.h"
#include "config/test_configs.h"

namespace millrace {
namespace {

using nlohmann::json;
using testing::golden_config;
using Flags = std::vector<uint8_t>;

ModelConfig parsed(const json& file) {
  auto config = parse_hf_config(file);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : ModelConfig{};
}

std::string error_of(const json& config) {
  const auto result = parse_hf_config(config);
  return result ? "no error" : result.error().message;
}

int count(const Flags& flags) { return std::accumulate(flags.begin(), flags.end(), 0); }

TEST(SparseHfConfig, GoldenOfQwen3Moe) {
  const ModelConfig config = parsed(golden_config("qwen3_moe"));
  EXPECT_EQ(config.architecture, Architecture::kQwen3Moe);
  EXPECT_FALSE(config.mla || config.indexer || config.qkv_bias || config.o_bias);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.rope.rotary_dim, 32);
  const MoeConfig& moe = config.moe.value();
  EXPECT_EQ(moe.num_experts, 8);
  EXPECT_EQ(moe.experts_per_token, 2);
  EXPECT_EQ(moe.intermediate_size, 32);
  EXPECT_EQ(moe.shared_intermediate_size, 0);
  EXPECT_EQ(moe.score, RouterScore::kSoftmax);
  EXPECT_FALSE(moe.correction_bias);
  EXPECT_TRUE(moe.norm_topk_prob);
  EXPECT_EQ(moe.norm_epsilon, 0);
  EXPECT_EQ(moe.routed_scaling_factor, 1);
  EXPECT_EQ(moe.num_groups, 1);
  EXPECT_EQ(moe.topk_groups, 1);
  EXPECT_EQ(moe.is_sparse, (Flags{1, 0, 1, 1}));
}

TEST(SparseHfConfig, GoldenOfGlm4Moe) {
  const ModelConfig config = parsed(golden_config("glm4_moe"));
  EXPECT_EQ(config.architecture, Architecture::kGlm4Moe);
  EXPECT_TRUE(config.qkv_bias && config.qk_norm);
  EXPECT_FALSE(config.o_bias || config.mla || config.rope.interleaved);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.rope.rotary_dim, 16);
  EXPECT_EQ(config.num_kv_heads, 2);
  const MoeConfig& moe = config.moe.value();
  EXPECT_EQ(moe.score, RouterScore::kSigmoid);
  EXPECT_TRUE(moe.correction_bias && moe.norm_topk_prob);
  EXPECT_FLOAT_EQ(moe.norm_epsilon, 1e-20f);
  EXPECT_EQ(moe.routed_scaling_factor, 2.5f);
  EXPECT_EQ(moe.shared_intermediate_size, 32);
  EXPECT_EQ(moe.is_sparse, (Flags{0, 1, 1, 1}));
}

TEST(SparseHfConfig, GoldenOfDeepseekV3) {
  const ModelConfig config = parsed(golden_config("deepseek_v3"));
  EXPECT_EQ(config.architecture, Architecture::kDeepseekV3);
  const MlaConfig& mla = config.mla.value();
  EXPECT_EQ(mla.q_lora_rank, 48);
  EXPECT_EQ(mla.kv_lora_rank, 32);
  EXPECT_EQ(mla.qk_nope_head_dim, 24);
  EXPECT_EQ(mla.qk_rope_head_dim, 16);
  EXPECT_EQ(mla.v_head_dim, 24);
  EXPECT_EQ(config.head_dim, 40);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.q_size(), 160);
  EXPECT_EQ(config.o_size(), 96);
  const double m = 0.1 * std::log(4.0) + 1;
  EXPECT_FLOAT_EQ(mla.softmax_scale, static_cast<float>(m * m / std::sqrt(40.0)));
  EXPECT_EQ(config.rope.type, RopeType::kYarn);
  EXPECT_EQ(config.rope.attention_factor, 1.0);
  EXPECT_EQ(config.rope.rotary_dim, 16);
  EXPECT_EQ(config.rope.original_max_position, 64);
  EXPECT_TRUE(config.rope.interleaved);
  EXPECT_FALSE(config.indexer || config.quantization);
  const MoeConfig& moe = config.moe.value();
  EXPECT_EQ(moe.num_groups, 4);
  EXPECT_EQ(moe.topk_groups, 2);
  EXPECT_EQ(moe.experts_per_token, 3);
}

TEST(SparseHfConfig, GoldenWithoutLowRankQuery) {
  const ModelConfig config = parsed(golden_config("deepseek_v3_no_q_lora"));
  EXPECT_EQ(config.mla.value().q_lora_rank, 0);
  // mscale 1 and mscale_all_dim 0.5: the scores get the latter squared, cos and sin the quotient.
  const double all_dim = 0.05 * std::log(4.0) + 1;
  EXPECT_FLOAT_EQ(config.mla->softmax_scale,
                  static_cast<float>(all_dim * all_dim / std::sqrt(40.0)));
  EXPECT_DOUBLE_EQ(config.rope.attention_factor, (0.1 * std::log(4.0) + 1) / all_dim);
}

TEST(SparseHfConfig, GoldensWithAnIndexer) {
  struct Row {
    const char* name;
    Architecture architecture;
    DType dtype;
    bool interleaved;
    Flags is_full;
    int mtp;
  };
  const Row table[] = {
      {"deepseek_v32", Architecture::kDeepseekV32, DType::kBF16, false, {1, 1, 1, 1}, 0},
      {"glm_moe_dsa_full", Architecture::kGlmMoeDsa, DType::kBF16, true, {1, 1, 1, 1, 1}, 0},
      {"glm_moe_dsa_shared", Architecture::kGlmMoeDsa, DType::kBF16, true, {1, 1, 0, 0, 1, 0}, 0},
      {"glm_moe_dsa_fp16", Architecture::kGlmMoeDsa, DType::kF16, true, {1, 1, 1, 1}, 0},
      {"glm_moe_dsa_sharded_mtp", Architecture::kGlmMoeDsa, DType::kBF16, true, {1, 1, 1, 1, 1}, 1},
  };
  for (const Row& row : table) {
    SCOPED_TRACE(row.name);
    const ModelConfig config = parsed(golden_config(row.name));
    EXPECT_EQ(config.architecture, row.architecture);
    EXPECT_EQ(config.dtype, row.dtype);
    EXPECT_EQ(config.num_mtp_layers, row.mtp);
    const IndexerConfig& indexer = config.indexer.value();
    EXPECT_EQ(indexer.num_heads, 16);
    EXPECT_EQ(indexer.head_dim, 32);
    EXPECT_EQ(indexer.topk, 16);
    EXPECT_EQ(indexer.interleaved, row.interleaved);
    EXPECT_EQ(indexer.is_full, row.is_full);
    EXPECT_TRUE(config.rope.interleaved);
    Flags sparse(row.is_full.size(), 1);
    sparse[0] = 0;
    EXPECT_EQ(config.moe.value().is_sparse, sparse);
    if (row.architecture == Architecture::kGlmMoeDsa) {
      EXPECT_FLOAT_EQ(config.mla.value().softmax_scale, static_cast<float>(1 / std::sqrt(40.0)));
    }
  }
}

TEST(SparseHfConfig, PublishedModels) {
  const ModelConfig qwen = parsed(testing::qwen3_30b_a3b());
  EXPECT_EQ(qwen.moe.value().num_experts, 128);
  EXPECT_EQ(count(qwen.moe->is_sparse), 48);
  const ModelConfig glm4 = parsed(testing::glm_4_5());
  EXPECT_EQ(glm4.rope.rotary_dim, 64);
  EXPECT_EQ(count(glm4.moe.value().is_sparse), 89);
  EXPECT_EQ(glm4.num_mtp_layers, 1);
  const ModelConfig v3 = parsed(testing::deepseek_v3());
  const double m = 0.1 * std::log(40.0) + 1;
  EXPECT_FLOAT_EQ(v3.mla.value().softmax_scale, static_cast<float>(m * m / std::sqrt(192.0)));
  EXPECT_EQ(v3.quantization.value().method, QuantizationMethod::kBlockFp8);
  EXPECT_EQ(v3.moe.value().num_groups, 8);
  EXPECT_EQ(v3.moe->topk_groups, 4);
  const ModelConfig v32 = parsed(testing::deepseek_v32());
  EXPECT_EQ(v32.indexer.value().num_heads, 64);
  EXPECT_EQ(count(v32.indexer->is_full), 61);
  const ModelConfig glm5 = parsed(testing::glm_5());
  EXPECT_EQ(count(glm5.indexer.value().is_full), 78);
  EXPECT_FLOAT_EQ(glm5.mla.value().softmax_scale, 0.0625f);
  EXPECT_EQ(glm5.rope.theta, 1e6);
  const ModelConfig glm52 = parsed(testing::glm_5_2());
  EXPECT_EQ(count(glm52.indexer.value().is_full), 21);
  EXPECT_EQ(Flags(glm52.indexer->is_full.begin(), glm52.indexer->is_full.begin() + 8),
            (Flags{1, 1, 1, 0, 0, 0, 1, 0}));
}

TEST(SparseHfConfig, DefaultsOfEachArchitecture) {
  json glm = golden_config("glm4_moe");
  glm["rope_parameters"].erase("partial_rotary_factor");
  glm.erase("use_qk_norm");
  glm.erase("attention_bias");
  glm.erase("rms_norm_eps");
  const ModelConfig config = parsed(glm);
  EXPECT_EQ(config.rope.rotary_dim, 16);
  EXPECT_FALSE(config.qk_norm || config.qkv_bias);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-5f);
  glm["partial_rotary_factor"] = 0.25;
  EXPECT_EQ(parsed(glm).rope.rotary_dim, 8);
  json v3 = golden_config("deepseek_v3");
  v3.erase("rope_interleave");
  EXPECT_TRUE(parsed(v3).rope.interleaved);
  v3["rope_interleave"] = false;
  EXPECT_FALSE(parsed(v3).rope.interleaved);
  json qwen = golden_config("qwen3_moe");
  qwen["attention_bias"] = true;
  EXPECT_TRUE(parsed(qwen).qkv_bias && parsed(qwen).o_bias);
  qwen.erase("mlp_only_layers");
  qwen["decoder_sparse_step"] = 2;
  EXPECT_EQ(parsed(qwen).moe.value().is_sparse, (Flags{0, 1, 0, 1}));
  json v32 = golden_config("deepseek_v32");
  v32["indexer_rope_interleave"] = true;
  EXPECT_TRUE(parsed(v32).indexer.value().interleaved);
  v32["n_shared_experts"] = nullptr;
  EXPECT_EQ(parsed(v32).moe.value().shared_intermediate_size, 0);
}

TEST(SparseHfConfig, LayersWithoutLists) {
  json config = golden_config("glm_moe_dsa_shared");
  for (const char* list : {"indexer_types", "mlp_layer_types", "layer_types"}) config.erase(list);
  EXPECT_EQ(parsed(config).moe.value().is_sparse, (Flags{0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(parsed(config).indexer.value().is_full, (Flags{1, 1, 1, 1, 1, 1}));
  struct Row {
    const char* changes;
    Flags is_full;
  };
  const Row table[] = {
      {R"({"index_topk_freq": 2})", {1, 1, 0, 1, 0, 1}},
      {R"({"index_topk_freq": 4, "index_skip_topk_offset": 3})", {1, 1, 1, 0, 0, 0}},
      {R"({"index_topk_freq": 3, "index_skip_topk_offset": 1})", {1, 0, 0, 1, 0, 0}},
      {R"({"index_topk_freq": 2, "index_topk_pattern": "FSSSSF"})", {1, 0, 0, 0, 0, 1}},
      {R"({"index_topk_pattern": ["full", "shared", "F", "S", "F", "F"]})", {1, 0, 1, 0, 1, 1}},
      {R"({"index_topk_pattern": "FSSSSF",
           "indexer_types": ["full", "full", "full", "shared", "full", "full"]})",
       {1, 1, 1, 0, 1, 1}},
  };
  for (const Row& row : table) {
    json changed = config;
    changed.update(json::parse(row.changes));
    EXPECT_EQ(parsed(changed).indexer.value().is_full, row.is_full) << row.changes;
  }
  config["first_k_dense_replace"] = 2;
  config["moe_layer_freq"] = 2;
  EXPECT_EQ(parsed(config).moe.value().is_sparse, (Flags{0, 0, 1, 0, 1, 0}));
}

struct BadField {
  const char* golden;
  const char* field;
  const char* value;  // null: the field is taken out
  const char* message;
};

void expect_errors(std::span<const BadField> table) {
  for (const BadField& row : table) {
    json config = golden_config(row.golden);
    config.erase(row.field);
    if (row.value != nullptr) config[row.field] = json::parse(row.value);
    EXPECT_EQ(error_of(config), row.message) << row.golden << " " << row.field;
  }
}

TEST(SparseHfConfig, BadLatentAttention) {
  constexpr const char* kV3 = "deepseek_v3";
  constexpr const char* kGlm = "glm_moe_dsa_full";
  const BadField table[] = {
      {kV3, "q_lora_rank", nullptr,
       "field q_lora_rank: missing, expected null or an integer from 1 to 65536"},
      {kV3, "q_lora_rank", "-1",
       "field q_lora_rank: found -1, expected an integer from 1 to 65536"},
      {kV3, "q_lora_rank", "0", "field q_lora_rank: found 0, expected an integer from 1 to 65536"},
      {kGlm, "q_lora_rank", "null",
       "field q_lora_rank: found null, expected an integer for GlmMoeDsaForCausalLM"},
      {kV3, "kv_lora_rank", nullptr,
       "field kv_lora_rank: missing, expected an integer from 1 to 65536"},
      {kV3, "kv_lora_rank", "\"512\"",
       "field kv_lora_rank: found \"512\", expected an integer from 1 to 65536"},
      {kV3, "qk_nope_head_dim", nullptr,
       "field qk_nope_head_dim: missing, expected an integer from 1 to 1024"},
      {kV3, "qk_nope_head_dim", "25",
       "field qk_head_dim: found 40, expected 41 (qk_nope_head_dim + qk_rope_head_dim)"},
      {kV3, "qk_rope_head_dim", "17", "field qk_rope_head_dim: found 17, expected an even number"},
      {kV3, "qk_rope_head_dim", "0",
       "field qk_rope_head_dim: found 0, expected an integer from 1 to 1024"},
      {kV3, "v_head_dim", "100000",
       "field v_head_dim: found 100000, expected an integer from 1 to 1024"},
      {kV3, "v_head_dim", nullptr, "field v_head_dim: missing, expected an integer from 1 to 1024"},
      {kV3, "num_key_value_heads", "2",
       "field num_key_value_heads: found 2, expected 4 (num_attention_heads, as heads share a "
       "latent)"},
      {kV3, "attention_bias", "true",
       "field attention_bias: found true, expected false for DeepseekV3ForCausalLM"},
      {kGlm, "rope_interleave", "false",
       "field rope_interleave: found false, expected true for GlmMoeDsaForCausalLM"},
      {kV3, "partial_rotary_factor", "0.5",
       "field partial_rotary_factor: found 0.5, expected 1 for this architecture"},
      {kV3, "mlp_bias", "true",
       "field mlp_bias: found true, expected false for DeepseekV3ForCausalLM"},
      {kV3, "index_topk", "16",
       "field index_topk: found 16; this field is not understood and may change what the model "
       "computes; remove it if it does not"},
      {kV3, "sliding_window", "4096",
       "field sliding_window: found 4096, expected null: sliding windows are not supported"},
      {kV3, "swiglu_limit", "10.0",
       "field swiglu_limit: found 10.0; this field is not understood and may change what the model "
       "computes; remove it if it does not"},
  };
  expect_errors(table);
}

TEST(SparseHfConfig, BadIndexer) {
  constexpr const char* kGlm = "glm_moe_dsa_full";
  constexpr const char* kV32 = "deepseek_v32";
  const BadField table[] = {
      {kGlm, "index_topk", nullptr,
       "field index_topk: missing, expected an integer from 1 to 1048576"},
      {kGlm, "index_topk", "-2048",
       "field index_topk: found -2048, expected an integer from 1 to 1048576"},
      {kGlm, "index_topk", "99999999999",
       "field index_topk: found 99999999999, expected an integer from 1 to 1048576"},
      {kGlm, "index_n_heads", "0",
       "field index_n_heads: found 0, expected an integer from 1 to 1024"},
      {kV32, "index_n_heads", nullptr,
       "field index_n_heads: missing, expected an integer from 1 to 1024"},
      {kV32, "index_head_dim", nullptr,
       "field index_head_dim: missing, expected an integer from 1 to 1024"},
      {kV32, "index_head_dim", "8",
       "field index_head_dim: found 8, expected at least qk_rope_head_dim 16"},
      {kV32, "index_head_dim", "34",
       "index_head_dim: found 34, expected a multiple of 4 from 16 (qk_rope_head_dim)"},
      {kGlm, "indexer_types", "[\"shared\", \"full\", \"full\", \"full\", \"full\"]",
       "field indexer_types: found \"shared\" for the first layer, expected \"full\": there is no "
       "layer before it whose selection it could take (index_topk_pattern or "
       "index_skip_topk_offset may say so too)"},
      {kGlm, "indexer_types", "[\"full\"]", "field indexer_types: found 1 layers, expected 5"},
      {kGlm, "indexer_types", "[\"full\", \"half\", \"full\", \"full\", \"full\"]",
       "field indexer_types: found \"half\", expected 5 of \"full\" or \"shared\", one a layer"},
      {kGlm, "indexer_types", "7",
       "field indexer_types: found 7, expected 5 of \"full\" or \"shared\", one a layer"},
      // Beside a list, which would win.
      {kGlm, "index_topk_pattern", "\"FFxFF\"",
       "field index_topk_pattern: found \"FFxFF\", expected 5 letters F or S"},
      {kGlm, "index_topk_pattern", "\"FFFF\"",
       "field index_topk_pattern: found 4 layers, expected 5"},
      {kGlm, "index_topk_pattern", "7",
       "field index_topk_pattern: found 7, expected 5 of \"full\" or \"shared\", one a layer"},
      {kV32, "index_topk_pattern", "\"FFSF\"",
       "field indexer_types: found \"shared\" layers, expected \"full\" for "
       "DeepseekV32ForCausalLM"},
      {kV32, "index_topk_pattern", "\"FFxF\"",
       "field index_topk_pattern: found \"FFxF\", expected 4 letters F or S"},
      {kV32, "index_topk_freq", "0",
       "field index_topk_freq: found 0, expected an integer from 1 to 4096"},
      {kV32, "index_skip_topk_offset", "-1",
       "field index_skip_topk_offset: found -1, expected an integer from 0 to 4096"},
      {kGlm, "layer_types",
       "[\"indexed_attention\", \"full_attention\", \"indexed_attention\", "
       "\"indexed_attention\", \"indexed_attention\"]",
       "field layer_types: found \"full_attention\", expected \"indexed_attention\" in each layer"},
      {kGlm, "index_kpool", "4",
       "field index_kpool: found 4; this field is not understood and may change what the model "
       "computes; remove it if it does not"},
  };
  expect_errors(table);
}

// Each matrix is listed before the first is found to be missing.
TEST(SparseHfConfig, MoreMatricesThanFitAreRefused) {
  json many = golden_config("qwen3_moe");
  many["num_hidden_layers"] = 4096;
  many["mlp_only_layers"] = json::array();
  many.erase("layer_types");
  many["num_experts"] = many["num_local_experts"] = 256;
  EXPECT_EQ(error_of(many), "no error");
  many["num_experts"] = many["num_local_experts"] = 257;
  EXPECT_EQ(error_of(many),
            "257 experts in each of 4096 layers, 32 columns wide: expected at most 1048576 experts "
            "in all, of 2^52 weights together");
  many["num_experts"] = many["num_local_experts"] = 256;
  many["hidden_size"] = 1 << 20;
  many["moe_intermediate_size"] = 1 << 22;
  EXPECT_TRUE(error_of(many).starts_with("256 experts in each of 4096 layers")) << error_of(many);

  json heads = golden_config("deepseek_v3");
  heads["num_hidden_layers"] = 4096;
  heads.erase("layer_types");
  heads.erase("mlp_layer_types");
  heads["num_attention_heads"] = heads["num_key_value_heads"] = 257;
  EXPECT_EQ(error_of(heads), "257 heads in each of 4096 layers: expected at most 1048576 in all");
}

TEST(SparseHfConfig, BadExperts) {
  constexpr const char* kV3 = "deepseek_v3";
  constexpr const char* kQwen = "qwen3_moe";
  const BadField table[] = {
      {kV3, "n_routed_experts", nullptr,
       "field n_routed_experts: missing, expected an integer from 1 to 65536 (or as num_experts)"},
      {kV3, "n_routed_experts", "-8",
       "field n_routed_experts: found -8, expected an integer from 1 to 65536"},
      {kV3, "n_routed_experts", "10",
       "field n_group: found 4, expected a divisor of the 10 experts"},
      {kV3, "n_routed_experts", "4",
       "expert groups: found 4 of one expert each, expected at least two in a group"},
      {kQwen, "num_experts", "16",
       "field num_local_experts: found 8, expected 16, as num_experts says"},
      {kV3, "num_experts_per_tok", "9",
       "field num_experts_per_tok: found 9, expected an integer from 1 to 8"},
      {kV3, "num_experts_per_tok", "5",
       "experts per token: found 5, expected at most 4 (2 groups of 2)"},
      {kQwen, "num_experts_per_tok", nullptr,
       "field num_experts_per_tok: missing, expected an integer from 1 to 8"},
      {kV3, "moe_intermediate_size", "0",
       "field moe_intermediate_size: found 0, expected an integer from 1 to 4194304"},
      {kQwen, "moe_intermediate_size", nullptr,
       "field moe_intermediate_size: missing, expected an integer from 1 to 4194304"},
      {kV3, "n_shared_experts", nullptr,
       "field n_shared_experts: missing, expected null or an integer from 0 to 1024"},
      {kV3, "n_shared_experts", "-1",
       "field n_shared_experts: found -1, expected an integer from 0 to 1024"},
      {kV3, "n_group", nullptr, "field n_group: missing, expected an integer from 1 to 8"},
      {kV3, "n_group", "0", "field n_group: found 0, expected an integer from 1 to 8"},
      {kV3, "n_group", "16", "field n_group: found 16, expected an integer from 1 to 8"},
      {kV3, "topk_group", "5", "field topk_group: found 5, expected an integer from 1 to 4"},
      {kV3, "topk_group", nullptr, "field topk_group: missing, expected an integer from 1 to 4"},
      {kV3, "norm_topk_prob", nullptr, "field norm_topk_prob: missing, expected true or false"},
      {kQwen, "norm_topk_prob", "1", "field norm_topk_prob: found 1, expected true or false"},
      {kV3, "routed_scaling_factor", nullptr,
       "field routed_scaling_factor: missing, expected a number from 1e-06 to 1e+06"},
      {kV3, "routed_scaling_factor", "-2.5",
       "field routed_scaling_factor: found -2.5, expected a number from 1e-06 to 1e+06"},
      {kV3, "scoring_func", "\"softmax\"",
       "field scoring_func: found \"softmax\", expected \"sigmoid\" for DeepseekV3ForCausalLM"},
      {kQwen, "scoring_func", "\"sigmoid\"",
       "field scoring_func: found \"sigmoid\", expected \"softmax\" for Qwen3MoeForCausalLM"},
      {kV3, "topk_method", "\"group_limited_greedy\"",
       "field topk_method: found \"group_limited_greedy\", expected \"noaux_tc\" for "
       "DeepseekV3ForCausalLM"},
      {kV3, "moe_router_dtype", "\"bfloat16\"",
       "field moe_router_dtype: found \"bfloat16\", expected \"float32\" for "
       "DeepseekV3ForCausalLM"},
      {kV3, "first_k_dense_replace", nullptr,
       "field first_k_dense_replace: missing, expected an integer from 0 to 4096 (or "
       "mlp_layer_types)"},
      {kV3, "first_k_dense_replace", "-1",
       "field first_k_dense_replace: found -1, expected an integer from 0 to 4096"},
      {kV3, "moe_layer_freq", "0",
       "field moe_layer_freq: found 0, expected an integer from 1 to 4096"},
      {"deepseek_v32", "mlp_layer_types", "[\"dense\"]",
       "field mlp_layer_types: found an array of 1, expected an array of 4"},
      {"deepseek_v32", "mlp_layer_types", "[\"dense\", \"sparse\", \"sparse\", 1]",
       "field mlp_layer_types: found 1, expected \"dense\" or \"sparse\" in each layer"},
      {kQwen, "decoder_sparse_step", "0",
       "field decoder_sparse_step: found 0, expected an integer from 1 to 4096"},
      {kQwen, "mlp_only_layers", "[4]", "field mlp_only_layers: found 4, expected layers below 4"},
      {kQwen, "mlp_only_layers", "1",
       "field mlp_only_layers: found 1, expected an array of layers"},
      {kQwen, "shared_expert_intermediate_size", "64",
       "field shared_expert_intermediate_size: found 64; this field is not understood and may "
       "change what the model computes; remove it if it does not"},
      {kV3, "num_nextn_predict_layers", "-1",
       "field num_nextn_predict_layers: found -1, expected an integer from 0 to 64"},
      {"glm4_moe", "use_qk_norm", "\"yes\"",
       "field use_qk_norm: found \"yes\", expected true or false"},
      {"glm4_moe", "hidden_act", "\"gelu\"", "field hidden_act: found \"gelu\", expected \"silu\""},
  };
  expect_errors(table);
}

// A seed that is refused would test nothing.
TEST(SparseHfConfig, SeedsOfTheFuzzTestAreAccepted) {
  for (const char* name : {"shared_fp8", "schedule_int4", "experts_awq", "experts_gptq"}) {
    std::ifstream file(std::string(MILLRACE_TEST_DATA) + "/fuzz/config/" + name + ".json");
    EXPECT_TRUE(parsed(json::parse(file)).quantization) << name;
  }
}

// Whatever a field holds, the answer is a configuration or an error of one line.
TEST(SparseHfConfig, NoValueOfAnyFieldCrashes) {
  const json values = json::parse(
      R"([null, true, -1, 0, 1, 3, 1e300, -0.0, 18446744073709551615, "", "x", [], [null], {}, {"a": 1},
          [1, "full"], 9223372036854775807, 0.5])");
  for (const char* name : testing::kSparseGoldens) {
    const json config = golden_config(name);
    for (const auto& [field, original] : config.items()) {
      for (const json& value : values) {
        json changed = config;
        changed[field] = value;
        const auto result = parse_hf_config(changed);
        if (result) continue;
        EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << result.error().message;
        EXPECT_FALSE(result.error().message.empty());
      }
    }
  }
}

}  // namespace
}  // namespace millrace
