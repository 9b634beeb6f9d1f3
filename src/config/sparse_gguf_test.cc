// GGUF metadata of sparse models: what converters write of a config.json must come out as from the
// config.json itself.
#include <gtest/gtest.h>

#include <cmath>

#include "config/model_config.h"
#include "config/test_configs.h"

namespace millrace {
namespace {

using nlohmann::json;
using testing::golden_config;
using Flags = std::vector<uint8_t>;
using Values = std::map<std::string, GgufValue>;

struct GgufModel {
  std::string arch;
  Values values;  // by the name below the architecture
  GgufTensorFacts facts;

  Result<ModelConfig> parse() const {
    GgufMetadata metadata;
    metadata.insert("general.architecture", arch);
    for (const auto& [name, value] : values) metadata.insert(arch + "." + name, value);
    return parse_gguf_config(metadata, facts);
  }
};

void put(Values& values, const json& config, const char* field, const char* name) {
  const auto it = config.find(field);
  if (it == config.end() || it->is_null()) return;
  if (it->is_boolean()) {
    values[name] = it->get<bool>();
  } else if (it->is_number_float()) {
    values[name] = static_cast<double>(it->get<float>());
  } else {
    values[name] = it->get<uint64_t>();
  }
}

void put_rope(Values& values, const json& config, const std::string& arch) {
  const json rope = config.contains("rope_parameters") ? config["rope_parameters"]
                                                       : config.value("rope_scaling", json());
  put(values, config, "rope_theta", "rope.freq_base");
  if (!rope.is_object()) return;
  put(values, rope, "rope_theta", "rope.freq_base");
  if (rope.value("rope_type", rope.value("type", "")) != "yarn") return;
  values["rope.scaling.type"] = std::string("yarn");
  put(values, rope, "factor", "rope.scaling.factor");
  put(values, rope, "original_max_position_embeddings", "rope.scaling.original_context_length");
  put(values, rope, "beta_fast", "rope.scaling.yarn_beta_fast");
  put(values, rope, "beta_slow", "rope.scaling.yarn_beta_slow");
  if (arch.starts_with("deepseek")) {
    values["rope.scaling.yarn_log_multiplier"] =
        static_cast<double>(static_cast<float>(0.1 * rope.value("mscale_all_dim", 0.0)));
  }
}

void put_mla(Values& values, const json& config) {
  const auto number = [&](const char* field) { return config[field].get<uint64_t>(); };
  values["attention.head_count_kv"] = uint64_t{1};
  values["attention.key_length"] = number("kv_lora_rank") + number("qk_rope_head_dim");
  values["attention.value_length"] = number("kv_lora_rank");
  values["attention.key_length_mla"] = number("qk_nope_head_dim") + number("qk_rope_head_dim");
  values["rope.dimension_count"] = number("qk_rope_head_dim");
  put(values, config, "v_head_dim", "attention.value_length_mla");
  put(values, config, "q_lora_rank", "attention.q_lora_rank");
  put(values, config, "kv_lora_rank", "attention.kv_lora_rank");
  put(values, config, "index_n_heads", "attention.indexer.head_count");
  put(values, config, "index_head_dim", "attention.indexer.key_length");
  put(values, config, "index_topk", "attention.indexer.top_k");
  if (!config.contains("indexer_types")) return;
  std::vector<bool> types;
  for (const auto& type : config["indexer_types"]) types.push_back(type == "full");
  values["attention.indexer.types"] = GgufArray{types};
}

// What a converter makes of a config.json, and the tensors it would write beside.
GgufModel converted(const json& config) {
  GgufModel model;
  const std::string type = config["model_type"];
  model.arch = type == "qwen3_moe"      ? "qwen3moe"
               : type == "glm4_moe"     ? "glm4moe"
               : type == "deepseek_v3"  ? "deepseek2"
               : type == "deepseek_v32" ? "deepseek32"
                                        : "glm-dsa";
  Values& values = model.values;
  const bool is_mla = config.contains("kv_lora_rank");
  const bool is_qwen = type == "qwen3_moe";
  const bool drops_mtp = type == "deepseek_v3";
  const uint64_t mtp = drops_mtp ? 0 : config.value("num_nextn_predict_layers", uint64_t{0});
  values["block_count"] = config["num_hidden_layers"].get<uint64_t>() + mtp;
  if (mtp > 0) values["nextn_predict_layers"] = mtp;
  const std::pair<const char*, const char*> names[] = {
      {"vocab_size", "vocab_size"},
      {"max_position_embeddings", "context_length"},
      {"hidden_size", "embedding_length"},
      {"intermediate_size", "feed_forward_length"},
      {"num_attention_heads", "attention.head_count"},
      {"num_key_value_heads", "attention.head_count_kv"},
      {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
      {"head_dim", "attention.key_length"},
      {"head_dim", "attention.value_length"},
      {"n_routed_experts", "expert_count"},
      {"num_experts", "expert_count"},
      {"num_local_experts", "expert_count"},
      {"num_experts_per_tok", "expert_used_count"},
      {"moe_intermediate_size", "expert_feed_forward_length"},
      {"n_shared_experts", "expert_shared_count"},
      {"n_group", "expert_group_count"},
      {"topk_group", "expert_group_used_count"},
      {"routed_scaling_factor", "expert_weights_scale"},
      {"first_k_dense_replace", "leading_dense_block_count"}};
  for (const auto& [field, name] : names) put(values, config, field, name);
  if (!is_qwen) {
    put(values, config, "norm_topk_prob", "expert_weights_norm");
    values["expert_gating_func"] = uint64_t{2};
  }
  if (type == "glm4_moe") {
    values["rope.dimension_count"] = config["head_dim"].get<uint64_t>() / 2;
  }
  if (is_mla) put_mla(values, config);
  put_rope(values, config, model.arch);
  GgufTensorFacts& facts = model.facts;
  facts.has_output = true;
  facts.dtype = DType::kBF16;
  facts.has_expert_bias = !is_qwen;
  facts.has_q_bias = config.value("attention_bias", false);
  facts.has_qk_norm = is_qwen || config.value("use_qk_norm", false);
  if (config.contains("mlp_only_layers")) {
    facts.has_router.assign(config["num_hidden_layers"].get<size_t>(), 1);
    for (const auto& layer : config["mlp_only_layers"]) facts.has_router[layer.get<size_t>()] = 0;
  }
  return model;
}

void expect_same_moe(const MoeConfig& a, const MoeConfig& b) {
  EXPECT_EQ(a.num_experts, b.num_experts);
  EXPECT_EQ(a.experts_per_token, b.experts_per_token);
  EXPECT_EQ(a.intermediate_size, b.intermediate_size);
  EXPECT_EQ(a.shared_intermediate_size, b.shared_intermediate_size);
  EXPECT_EQ(a.score, b.score);
  EXPECT_EQ(a.correction_bias, b.correction_bias);
  EXPECT_EQ(a.num_groups, b.num_groups);
  EXPECT_EQ(a.topk_groups, b.topk_groups);
  EXPECT_EQ(a.norm_topk_prob, b.norm_topk_prob);
  EXPECT_EQ(a.norm_epsilon, b.norm_epsilon);
  EXPECT_EQ(a.routed_scaling_factor, b.routed_scaling_factor);
  EXPECT_EQ(a.is_sparse, b.is_sparse);
}

void expect_same_mla(const MlaConfig& a, const MlaConfig& b) {
  EXPECT_EQ(a.q_lora_rank, b.q_lora_rank);
  EXPECT_EQ(a.kv_lora_rank, b.kv_lora_rank);
  EXPECT_EQ(a.qk_nope_head_dim, b.qk_nope_head_dim);
  EXPECT_EQ(a.qk_rope_head_dim, b.qk_rope_head_dim);
  EXPECT_EQ(a.v_head_dim, b.v_head_dim);
  EXPECT_EQ(a.softmax_scale, b.softmax_scale);
}

void expect_same(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.architecture, b.architecture);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.intermediate_size, b.intermediate_size);
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.num_heads, b.num_heads);
  EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
  EXPECT_EQ(a.tie_word_embeddings, b.tie_word_embeddings);
  EXPECT_EQ(a.qkv_bias, b.qkv_bias);
  EXPECT_EQ(a.o_bias, b.o_bias);
  EXPECT_EQ(a.qk_norm, b.qk_norm);
  EXPECT_EQ(a.rope.type, b.rope.type);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.rope.rotary_dim, b.rope.rotary_dim);
  EXPECT_EQ(a.rope.interleaved, b.rope.interleaved);
  EXPECT_EQ(a.rope.factor, b.rope.factor);
  EXPECT_EQ(a.rope.original_max_position, b.rope.original_max_position);
  EXPECT_EQ(a.rope.attention_factor, b.rope.attention_factor);
  ASSERT_EQ(a.mla.has_value(), b.mla.has_value());
  if (a.mla) expect_same_mla(*a.mla, *b.mla);
  ASSERT_EQ(a.moe.has_value(), b.moe.has_value());
  if (a.moe) expect_same_moe(*a.moe, *b.moe);
  ASSERT_EQ(a.indexer.has_value(), b.indexer.has_value());
  if (!a.indexer) return;
  EXPECT_EQ(a.indexer->num_heads, b.indexer->num_heads);
  EXPECT_EQ(a.indexer->head_dim, b.indexer->head_dim);
  EXPECT_EQ(a.indexer->topk, b.indexer->topk);
  EXPECT_EQ(a.indexer->interleaved, b.indexer->interleaved);
  EXPECT_EQ(a.indexer->is_full, b.indexer->is_full);
}

TEST(SparseGgufConfig, SameAsTheConfigJsonItWasMadeFrom) {
  std::vector<json> configs = {testing::qwen3_30b_a3b(), testing::glm_4_5(), testing::deepseek_v3(),
                               testing::deepseek_v32(),  testing::glm_5(),   testing::glm_5_2()};
  for (const char* name : testing::kSparseGoldens) configs.push_back(golden_config(name));
  // GGUF does not store mscale: where it is not mscale_all_dim (or 1 beside 1), it is lost.
  configs[6 + 3]["rope_parameters"]["mscale"] = 0.5;
  for (const json& config : configs) {
    SCOPED_TRACE(config["architectures"].dump() + config["hidden_size"].dump());
    const auto original = parse_hf_config(config);
    ASSERT_TRUE(original) << original.error().message;
    const auto from_gguf = converted(config).parse();
    ASSERT_TRUE(from_gguf) << from_gguf.error().message;
    expect_same(*original, *from_gguf);
  }
}

TEST(SparseGgufConfig, LayersThatShareAnIndexer) {
  GgufModel model = converted(testing::glm_5_2());
  // Files of GLM-5.2 from before there was a key: the context length tells.
  EXPECT_EQ(model.parse()->indexer->is_full, parse_hf_config(testing::glm_5_2())->indexer->is_full);
  // Tensors decide if some layers have none.
  model.facts.has_indexer.assign(79, 0);
  for (const size_t layer : {0, 1, 5, 78}) model.facts.has_indexer[layer] = 1;
  Flags expected(78, 0);
  expected[0] = expected[1] = expected[5] = 1;
  EXPECT_EQ(model.parse()->indexer->is_full, expected);
  model.facts.has_indexer.assign(79, 1);
  EXPECT_EQ(model.parse()->indexer->is_full, parse_hf_config(testing::glm_5_2())->indexer->is_full);
  // The key wins, with or without the layers of multi-token prediction, as flags or numbers.
  std::vector<uint64_t> numbers(79, 0);
  numbers[0] = numbers[3] = 1;
  model.values["attention.indexer.types"] = GgufArray{numbers};
  expected.assign(78, 0);
  expected[0] = expected[3] = 1;
  EXPECT_EQ(model.parse()->indexer->is_full, expected);
  model.values.erase("attention.indexer.types");
  model.values["attention.indexer.top_k_frequency"] = uint64_t{2};
  model.values["attention.indexer.skip_top_k_offset"] = uint64_t{1};
  const auto scheduled = model.parse();
  EXPECT_EQ(Flags(scheduled->indexer->is_full.begin(), scheduled->indexer->is_full.begin() + 4),
            (Flags{1, 0, 1, 0}));
}

TEST(SparseGgufConfig, OlderFiles) {
  // DeepSeek-V2-Lite: no low-rank query, a softmax router, an unsplit key-value matrix.
  GgufModel lite;
  lite.arch = "deepseek2";
  lite.values = {{"block_count", uint64_t{27}},
                 {"context_length", uint64_t{163840}},
                 {"embedding_length", uint64_t{2048}},
                 {"feed_forward_length", uint64_t{10944}},
                 {"vocab_size", uint64_t{102400}},
                 {"attention.head_count", uint64_t{16}},
                 {"attention.head_count_kv", uint64_t{16}},
                 {"attention.layer_norm_rms_epsilon", 1e-6},
                 {"attention.kv_lora_rank", uint64_t{512}},
                 {"attention.key_length", uint64_t{192}},
                 {"attention.value_length", uint64_t{128}},
                 {"rope.dimension_count", uint64_t{64}},
                 {"rope.scaling.type", std::string("yarn")},
                 {"rope.scaling.factor", 40.0},
                 {"rope.scaling.original_context_length", uint64_t{4096}},
                 {"rope.scaling.yarn_log_multiplier", static_cast<double>(0.0707f)},
                 {"expert_count", uint64_t{64}},
                 {"expert_used_count", uint64_t{6}},
                 {"expert_shared_count", uint64_t{2}},
                 {"expert_feed_forward_length", uint64_t{1408}},
                 {"expert_weights_scale", 1.0},
                 {"leading_dense_block_count", uint64_t{1}}};
  const auto config = lite.parse();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->mla->q_lora_rank, 0);
  EXPECT_EQ(config->mla->qk_nope_head_dim, 128);
  EXPECT_EQ(config->mla->v_head_dim, 128);
  EXPECT_EQ(config->num_kv_heads, 16);
  EXPECT_EQ(config->rope.attention_factor, 1.0);
  const double m = 0.0707 * std::log(40.0) + 1;
  EXPECT_FLOAT_EQ(config->mla->softmax_scale, static_cast<float>(m * m / std::sqrt(192.0)));
  EXPECT_EQ(config->moe->score, RouterScore::kSoftmax);
  EXPECT_FALSE(config->moe->norm_topk_prob || config->moe->correction_bias);
  EXPECT_EQ(config->moe->shared_intermediate_size, 2816);
  EXPECT_EQ(config->moe->norm_epsilon, 0);
  // Early files of Qwen3: the expert's width follows from the dense one.
  GgufModel qwen = converted(testing::qwen3_30b_a3b());
  qwen.values.erase("expert_feed_forward_length");
  qwen.facts.has_router.clear();
  EXPECT_EQ(qwen.parse()->moe->intermediate_size, 768);
}

TEST(SparseGgufConfig, BadKeysAreErrorsThatNameThem) {
  struct Row {
    const char* golden;
    const char* name;
    std::optional<GgufValue> value;  // none: taken out
    const char* message;
  };
  constexpr const char* kV3 = "deepseek_v3";
  constexpr const char* kV32 = "deepseek_v32";
  constexpr const char* kGlm = "glm_moe_dsa_sharded_mtp";
  constexpr const char* kQwen = "qwen3_moe";
  const Row table[] = {
      {kV3,
       "attention.kv_lora_rank",
       {},
       "metadata deepseek2.attention.kv_lora_rank: missing, expected an integer"},
      {kV3, "attention.kv_lora_rank", int64_t{-1},
       "metadata deepseek2.attention.kv_lora_rank: found -1, expected 1 to 16777216"},
      {kGlm,
       "attention.q_lora_rank",
       {},
       "metadata glm-dsa.attention.q_lora_rank: missing, expected an integer"},
      {kV3,
       "rope.dimension_count",
       {},
       "metadata deepseek2.rope.dimension_count: missing, expected an integer"},
      {kV3, "rope.dimension_count", uint64_t{8},
       "metadata deepseek2.attention.key_length: found 48, expected 40 (kv_lora_rank + "
       "rope.dimension_count), and value_length 32"},
      {kV3, "attention.key_length_mla", uint64_t{16},
       "metadata deepseek2.attention.key_length_mla: found 16, expected more than "
       "rope.dimension_count 16"},
      {kV3,
       "attention.value_length_mla",
       {},
       "metadata deepseek2.attention.value_length_mla: missing, expected an integer, as the other "
       "one is there"},
      {kV3, "attention.value_length_mla", uint64_t{5000},
       "v_head_dim: found 5000, expected 1 to 1024"},
      {kV3, "rope.scaling.yarn_log_multiplier", -0.1,
       "metadata deepseek2.rope.scaling.yarn_log_multiplier: found -0.1, expected a number from 0 "
       "to 100"},
      {kV3, "rope.scaling.yarn_attn_factor", 1.5,
       "metadata deepseek2.rope.scaling.yarn_attn_factor: found a factor other than 1, expected "
       "none in latent attention, where it is not clear what it multiplies"},
      {kV3, "attention.indexer.top_k", uint64_t{16},
       "metadata deepseek2.attention.indexer.top_k: found integer 16; this key is not understood "
       "and may change what the model computes"},
      {kQwen, "attention.kv_lora_rank", uint64_t{16},
       "metadata qwen3moe.attention.kv_lora_rank: found integer 16; this key is not understood and "
       "may change what the model computes"},
      {kGlm,
       "attention.indexer.head_count",
       {},
       "metadata glm-dsa.attention.indexer.head_count: missing, expected an integer"},
      {kGlm, "attention.indexer.key_length", uint64_t{8},
       "index_head_dim: found 8, expected a multiple of 4 from 16 (qk_rope_head_dim)"},
      {kGlm, "attention.indexer.top_k", uint64_t{0},
       "metadata glm-dsa.attention.indexer.top_k: found 0, expected 1 to 16777216"},
      {kGlm, "attention.indexer.types", uint64_t{1},
       "metadata glm-dsa.attention.indexer.types: found integer 1, expected an array of integers"},
      {kGlm, "attention.indexer.types", GgufArray{std::vector<bool>{true}},
       "metadata glm-dsa.attention.indexer.types: found 1 layers, expected 5"},
      {kGlm, "attention.indexer.types", GgufArray{std::vector<uint64_t>{1, 2, 1, 1, 1}},
       "metadata glm-dsa.attention.indexer.types: found 2, expected 0 or 1 in each place"},
      {kGlm, "attention.indexer.types", GgufArray{std::vector<bool>{false, true, true, true, true}},
       "indexer types: found a first layer that shares, expected one with an indexer"},
      {kV32, "attention.indexer.types", GgufArray{std::vector<bool>{true, true, false, true}},
       "metadata deepseek32.attention.indexer.types: found layers that share, expected 1 in each "
       "place"},
      {kGlm, "attention.layer_norm_epsilon", 1e-5,
       "metadata glm-dsa.attention.layer_norm_epsilon: found 1e-05, expected 1e-06"},
      {kGlm, "nextn_predict_layers", uint64_t{6},
       "metadata glm-dsa.nextn_predict_layers: found 6, expected fewer than block_count"},
      {kV3, "expert_count", {}, "metadata deepseek2.expert_count: missing, expected an integer"},
      {kV3, "expert_count", uint64_t{10},
       "expert groups: found 4, expected a divisor of the 10 experts"},
      {kV3,
       "expert_used_count",
       {},
       "metadata deepseek2.expert_used_count: missing, expected an integer"},
      {kV3, "expert_used_count", uint64_t{5},
       "experts per token: found 5, expected at most 4 (2 groups of 2)"},
      {kV3,
       "expert_feed_forward_length",
       {},
       "metadata deepseek2.expert_feed_forward_length: missing, expected an integer"},
      {kV3, "expert_feed_forward_length", uint64_t{0},
       "metadata deepseek2.expert_feed_forward_length: found 0, expected 1 to 4194304"},
      {kV3, "expert_shared_feed_forward_length", uint64_t{48},
       "metadata deepseek2.expert_shared_count: found 1, expected a number of experts that have 48 "
       "columns together (expert_shared_feed_forward_length)"},
      {kV32,
       "expert_gating_func",
       {},
       "metadata deepseek32.expert_gating_func: missing, expected 2 (sigmoid)"},
      {kV32, "expert_gating_func", uint64_t{1},
       "metadata deepseek32.expert_gating_func: found 1, expected 2 (sigmoid)"},
      {kV3, "expert_gating_func", uint64_t{3},
       "metadata deepseek2.expert_gating_func: found 3, expected 1 (softmax) or 2 (sigmoid)"},
      {kV3, "expert_gating_func", uint64_t{1},
       "metadata deepseek2.expert_group_count: found 4, expected 1: groups are not supported with "
       "a softmax router"},
      {kQwen, "expert_gating_func", uint64_t{2},
       "metadata qwen3moe.expert_gating_func: found 2, expected 1 (softmax)"},
      {kV3, "expert_weights_scale", -1.0,
       "metadata deepseek2.expert_weights_scale: found -1, expected a number from 0 to 1000000"},
      {kV3, "expert_weights_norm", std::string("yes"),
       "metadata deepseek2.expert_weights_norm: found string \"yes\", expected true or false"},
      {kV3, "leading_dense_block_count", uint64_t{5},
       "metadata deepseek2.leading_dense_block_count: found 5, expected 0 to 4"},
      {kV3, "attention.temperature_scale", 0.1,
       "metadata deepseek2.attention.temperature_scale: found number 0.1; this key is not "
       "understood and may change what the model computes"},
  };
  for (const Row& row : table) {
    GgufModel model = converted(golden_config(row.golden));
    model.values.erase(row.name);
    if (row.value) model.values.emplace(row.name, *row.value);
    const auto result = model.parse();
    EXPECT_EQ(result ? "no error" : result.error().message, row.message)
        << row.golden << " " << row.name;
  }
}

TEST(SparseGgufConfig, BiasesInLatentAttentionAreRefused) {
  GgufModel model = converted(golden_config("deepseek_v3"));
  model.facts.has_o_bias = true;
  EXPECT_EQ(model.parse().error().message, "biases in latent attention are not supported");
}

}  // namespace
}  // namespace millrace
