#include "config/model_config.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

using nlohmann::json;

json llama() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 0, "dtype": "bfloat16", "eos_token_id": 1, "head_dim": 16, "hidden_act": "silu",
    "hidden_size": 128, "initializer_range": 0.02, "intermediate_size": 192,
    "max_position_embeddings": 512, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 8, "num_hidden_layers": 4, "num_key_value_heads": 2, "pad_token_id": null,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "tie_word_embeddings": false,
    "transformers_version": "5.24.0", "use_cache": true, "vocab_size": 384})");
}

json qwen2() {
  json config = llama();
  config["architectures"] = {"Qwen2ForCausalLM"};
  config["model_type"] = "qwen2";
  config.erase("head_dim");
  config.erase("attention_bias");
  config.erase("mlp_bias");
  config["layer_types"] =
      json::array({"full_attention", "full_attention", "full_attention", "full_attention"});
  config["max_window_layers"] = 28;
  config["sliding_window"] = 4096;
  config["use_sliding_window"] = false;
  return config;
}

json qwen3() {
  json config = qwen2();
  config["architectures"] = {"Qwen3ForCausalLM"};
  config["model_type"] = "qwen3";
  config["head_dim"] = 32;
  config["tie_word_embeddings"] = true;
  return config;
}

std::string error_of(const json& config) {
  const auto result = parse_hf_config(config);
  return result ? "no error" : result.error().message;
}

TEST(HfConfig, Llama) {
  const auto config = parse_hf_config(llama());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->architecture, Architecture::kLlama);
  EXPECT_EQ(config->vocab_size, 384);
  EXPECT_EQ(config->hidden_size, 128);
  EXPECT_EQ(config->intermediate_size, 192);
  EXPECT_EQ(config->num_layers, 4);
  EXPECT_EQ(config->num_heads, 8);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->q_size(), 128);
  EXPECT_EQ(config->kv_size(), 32);
  EXPECT_FLOAT_EQ(config->rms_norm_eps, 1e-5f);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_EQ(config->dtype, DType::kBF16);
  EXPECT_EQ(config->eos_token_ids, std::vector<int64_t>{1});
  EXPECT_EQ(config->bos_token_id, 0);
  EXPECT_FALSE(config->tie_word_embeddings || config->qkv_bias || config->o_bias ||
               config->mlp_bias || config->qk_norm || config->rope.interleaved);
  EXPECT_EQ(config->rope.type, RopeType::kDefault);
  EXPECT_EQ(config->rope.theta, 10000.0);
  EXPECT_EQ(config->rope.rotary_dim, 16);
  EXPECT_EQ(config->rope.attention_factor, 1.0);
}

TEST(HfConfig, BiasesAndNormsByArchitecture) {
  const auto second = parse_hf_config(qwen2());
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(second->qkv_bias);
  EXPECT_FALSE(second->o_bias || second->qk_norm || second->tie_word_embeddings);
  EXPECT_EQ(second->head_dim, 16);
  const auto third = parse_hf_config(qwen3());
  ASSERT_TRUE(third) << third.error().message;
  EXPECT_FALSE(third->qkv_bias);
  EXPECT_TRUE(third->qk_norm && third->tie_word_embeddings);
  EXPECT_EQ(third->head_dim, 32);
  json biased = llama();
  biased["attention_bias"] = true;
  biased["mlp_bias"] = true;
  const auto with_bias = parse_hf_config(biased);
  EXPECT_TRUE(with_bias->qkv_bias && with_bias->o_bias && with_bias->mlp_bias);
}

TEST(HfConfig, HeadDimMayBeNullOrAbsent) {
  json config = llama();
  config["head_dim"] = nullptr;
  EXPECT_EQ(parse_hf_config(config)->head_dim, 16);
  config.erase("head_dim");
  EXPECT_EQ(parse_hf_config(config)->head_dim, 16);
  config["num_attention_heads"] = 6;
  EXPECT_EQ(
      error_of(config),
      "field num_attention_heads: found 6, expected a divisor of hidden_size 128, as there is "
      "no head_dim");
}

TEST(HfConfig, AbsentKvHeadsMeanOnePerHead) {
  json config = llama();
  config.erase("num_key_value_heads");
  EXPECT_EQ(parse_hf_config(config)->num_kv_heads, 8);
}

// Config with RoPE fields replaced by those of `fields`.
json with_rope(const char* fields) {
  json config = llama();
  config.erase("rope_parameters");
  config.update(json::parse(fields));
  return config;
}

TEST(HfConfig, RopeFlatOrNested) {
  struct Row {
    const char* fields;
    RopeType type;
    double theta;
    double factor;
  };
  const Row table[] = {
      {R"({})", RopeType::kDefault, 10000, 1},
      {R"({"rope_theta": 5e5, "rope_scaling": null})", RopeType::kDefault, 5e5, 1},
      {R"({"rope_theta": 7, "rope_scaling": {"type": "linear", "factor": 2.0}})", RopeType::kLinear,
       7, 2},
      {R"({"rope_theta": 7, "rope_scaling": {"rope_type": "linear", "factor": 4}})",
       RopeType::kLinear, 7, 4},
      {R"({"rope_theta": 7, "rope_parameters": {"rope_theta": 9, "rope_type": "default"}})",
       RopeType::kDefault, 9, 1},
      {R"({"rope_theta": 7, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}})",
       RopeType::kYarn, 7, 4},
      // The type under its newer name wins.
      {R"({"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 3}})",
       RopeType::kLinear, 10000, 3},
      {R"({"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 5e5}})",
       RopeType::kLlama3, 5e5, 8},
  };
  for (const Row& row : table) {
    const auto config = parse_hf_config(with_rope(row.fields));
    ASSERT_TRUE(config) << row.fields << config.error().message;
    EXPECT_EQ(config->rope.type, row.type) << row.fields;
    EXPECT_EQ(config->rope.theta, row.theta) << row.fields;
    EXPECT_EQ(config->rope.factor, row.factor) << row.fields;
  }
}

TEST(HfConfig, RopeOriginalLengthHasThreeSources) {
  EXPECT_EQ(parse_hf_config(with_rope(R"({"rope_scaling": {"type": "yarn", "factor": 4,
      "original_max_position_embeddings": 100}})"))
                ->rope.original_max_position,
            100);
  EXPECT_EQ(parse_hf_config(with_rope(R"({"original_max_position_embeddings": 200,
      "rope_scaling": {"type": "yarn", "factor": 4}})"))
                ->rope.original_max_position,
            200);
  EXPECT_EQ(parse_hf_config(with_rope(R"({"rope_scaling": {"type": "yarn", "factor": 4}})"))
                ->rope.original_max_position,
            512);
}

TEST(HfConfig, YarnAttentionFactor) {
  struct Row {
    const char* scaling;
    double expected;
  };
  const double ln4 = std::log(4.0);
  const Row table[] = {
      {R"({"type": "yarn", "factor": 4})", 0.1 * ln4 + 1},
      {R"({"type": "yarn", "factor": 1})", 1.0},
      {R"({"type": "yarn", "factor": 4, "attention_factor": 1.5, "mscale": 1})", 1.5},
      {R"({"type": "yarn", "factor": 4, "mscale": 1.0, "mscale_all_dim": 1.0})", 1.0},
      {R"({"type": "yarn", "factor": 4, "mscale": 1.0, "mscale_all_dim": 0.5})",
       (0.1 * ln4 + 1) / (0.05 * ln4 + 1)},
      {R"({"type": "yarn", "factor": 4, "mscale": 0.707, "mscale_all_dim": 0})", 0.1 * ln4 + 1},
  };
  for (const Row& row : table) {
    json config = with_rope("{}");
    config["rope_scaling"] = json::parse(row.scaling);
    const auto parsed = parse_hf_config(config);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_DOUBLE_EQ(parsed->rope.attention_factor, row.expected) << row.scaling;
    EXPECT_EQ(parsed->rope.beta_fast, 32);
    EXPECT_TRUE(parsed->rope.truncate);
  }
}

TEST(HfConfig, BadRopeIsAnError) {
  struct Row {
    const char* fields;
    const char* message;
  };
  const Row table[] = {
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
       "field rope_type: found \"dynamic\", expected default, linear, llama3 or yarn"},
      {R"({"rope_scaling": {"type": "linear"}})",
       "field factor: missing, expected a number, as rope_type is linear"},
      {R"({"rope_scaling": {"type": "linear", "factor": 0.5}})",
       "field rope_scaling.factor: found 0.5, expected a number from 1 to 10000"},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8}})",
       "field low_freq_factor: missing, expected a number, as rope_type is llama3"},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4,
          "high_freq_factor": 4}})",
       "field high_freq_factor: found 4, expected more than low_freq_factor 4"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 8, "beta_fast": 1, "beta_slow": 2}})",
       "field beta_fast: found 1, expected at least beta_slow 2"},
      {R"({"rope_scaling": "yarn"})", "field rope_scaling: found \"yarn\", expected an object"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 8, "mrope_section": [1, 2]}})",
       "field rope_scaling.mrope_section: found an array of 2; this field is not understood and "
       "may "
       "change what the model computes; remove it if it does not"},
      {R"({"rope_scaling": {"type": "linear", "factor": 8}, "rope_parameters": {}})",
       "fields rope_parameters and rope_scaling: both are there and differ, expected one"},
      {R"({"partial_rotary_factor": 0.5})",
       "field partial_rotary_factor: found 0.5, expected 1 for this architecture"},
      {R"({"rope_theta": 0})", "field rope_theta: found 0, expected a number from 1.001 to 1e+12"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "rope_theta": 1.0}})",
       "field rope_scaling.rope_theta: found 1.0, expected a number from 1.001 to 1e+12"},
      {R"({"rope_theta": "big"})",
       "field rope_theta: found \"big\", expected a number from 1.001 to 1e+12"},
  };
  for (const Row& row : table) EXPECT_EQ(error_of(with_rope(row.fields)), row.message);
}

TEST(HfConfig, EveryBadFieldIsAnErrorThatNamesIt) {
  struct Row {
    const char* field;
    const char* value;  // null: the field is removed
    const char* message;
  };
  const Row table[] = {
      {"hidden_size", nullptr,
       "field hidden_size: missing, expected an integer from 1 to 16777216"},
      {"hidden_size", "-1", "field hidden_size: found -1, expected an integer from 1 to 16777216"},
      {"hidden_size", "1.5",
       "field hidden_size: found 1.5, expected an integer from 1 to 16777216"},
      {"hidden_size", "2000000", "hidden size: found 2000000, expected 1 to 1048576"},
      {"vocab_size", "\"many\"",
       "field vocab_size: found \"many\", expected an integer from 1 to 16777216"},
      {"vocab_size", "18446744073709551615",
       "field vocab_size: found 18446744073709551615, expected an integer from 1 to 16777216"},
      {"intermediate_size", "0",
       "field intermediate_size: found 0, expected an integer from 1 to 16777216"},
      {"num_hidden_layers", "100000",
       "field num_hidden_layers: found 100000, expected an integer from 1 to 4096"},
      {"num_attention_heads", "null",
       "field num_attention_heads: missing, expected an integer from 1 to 16777216"},
      {"num_key_value_heads", "3",
       "number of KV heads: found 3, expected a divisor of the 8 heads"},
      {"num_key_value_heads", "16",
       "field num_key_value_heads: found 16, expected an integer from 1 to 8"},
      {"head_dim", "15", "rotary dimensions: found 15, expected an even number up to head_dim 15"},
      {"head_dim", "2048", "head_dim: found 2048, expected 1 to 1024"},
      {"max_position_embeddings", nullptr,
       "field max_position_embeddings: missing, expected an integer from 1 to 1073741824"},
      {"rms_norm_eps", "0", "field rms_norm_eps: found 0, expected a number from 1e-30 to 0.5"},
      {"rms_norm_eps", "true",
       "field rms_norm_eps: found true, expected a number from 1e-30 to 0.5"},
      {"hidden_act", "\"gelu\"", "field hidden_act: found \"gelu\", expected \"silu\""},
      {"tie_word_embeddings", "1", "field tie_word_embeddings: found 1, expected true or false"},
      {"attention_bias", "\"yes\"", "field attention_bias: found \"yes\", expected true or false"},
      {"dtype", "\"int8\"", "field dtype: found \"int8\", expected float32, float16 or bfloat16"},
      {"eos_token_id", "\"</s>\"",
       "field eos_token_id: found \"</s>\", expected a token or an array of tokens"},
      {"eos_token_id", "[1, 400]", "end token: found 400, expected a token below 384"},
      {"sliding_window", "4096",
       "field sliding_window: found 4096, expected null: sliding windows are not supported"},
      {"use_sliding_window", "true",
       "field use_sliding_window: found true, expected false: sliding windows are not supported"},
      {"layer_types", "[\"full_attention\"]",
       "field layer_types: found an array of 1, expected an array of 4"},
      {"layer_types",
       "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"full_attention\"]",
       "field layer_types: found \"sliding_attention\", expected \"full_attention\" in each layer"},
      {"quantization_config", "{\"quant_method\": \"gptq\"}",
       "field quantization_config.bits: missing, expected an integer from -65536 to 65536"},
      {"architectures", "[]",
       "field architectures: found an array of 0, expected an array of one name"},
      {"architectures", "[\"GPT2LMHeadModel\"]",
       "field architectures: architecture \"GPT2LMHeadModel\" is not supported; supported: "
       "LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, "
       "Glm4MoeForCausalLM, DeepseekV3ForCausalLM, DeepseekV32ForCausalLM, GlmMoeDsaForCausalLM"},
      {"logit_scale", "2.0",
       "field logit_scale: found 2.0; this field is not understood and may change what the model "
       "computes; remove it if it does not"},
      {"final_logit_softcapping", "30.0",
       "field final_logit_softcapping: found 30.0; this field is not understood and may change "
       "what "
       "the model computes; remove it if it does not"},
  };
  for (const Row& row : table) {
    json config = llama();
    config.erase(row.field);
    if (row.value != nullptr) config[row.field] = json::parse(row.value);
    EXPECT_EQ(error_of(config), row.message) << row.field;
  }
  EXPECT_EQ(error_of(json::array()), "found an array of 0, expected an object");
}

TEST(HfConfig, HarmlessFieldsAreIgnored) {
  json config = llama();
  config.update(
      json::parse(R"({"_name_or_path": "x", "unsloth_version": "1", "torch_dtype": "float16",
      "is_llama_config": true, "rope_interleaved": false, "logit_scale": null, "auto_map": {"a": 1},
      "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "embedding_multiplier": null})"));
  EXPECT_EQ(error_of(config), "no error");
  // The newer name of the type wins.
  EXPECT_EQ(parse_hf_config(config)->dtype, DType::kBF16);
  config["rope_interleaved"] = true;
  EXPECT_NE(error_of(config), "no error");
}

TEST(HfConfig, ModelTypeStandsInForArchitectures) {
  json config = qwen3();
  config.erase("architectures");
  EXPECT_EQ(parse_hf_config(config)->architecture, Architecture::kQwen3);
  config["model_type"] = "mamba";
  EXPECT_EQ(
      error_of(config),
      "field model_type: architecture \"mamba\" is not supported; supported: "
      "LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, "
      "Glm4MoeForCausalLM, DeepseekV3ForCausalLM, DeepseekV32ForCausalLM, GlmMoeDsaForCausalLM");
}

class GgufConfig : public ::testing::Test {
 protected:
  // Metadata of a model of `arch` with `changes` ("name below the architecture", value) on top.
  static Result<ModelConfig> parse(
      const std::string& arch, const std::vector<std::pair<std::string, GgufValue>>& changes = {},
      const GgufTensorFacts& facts = {}) {
    std::map<std::string, GgufValue> values = {{"block_count", uint64_t{4}},
                                               {"context_length", uint64_t{512}},
                                               {"embedding_length", uint64_t{128}},
                                               {"feed_forward_length", uint64_t{192}},
                                               {"attention.head_count", uint64_t{8}},
                                               {"attention.head_count_kv", uint64_t{2}},
                                               {"attention.layer_norm_rms_epsilon", 1e-5},
                                               {"rope.freq_base", 100000.0},
                                               {"vocab_size", uint64_t{384}}};
    for (const auto& [name, value] : changes) values[name] = value;
    GgufMetadata metadata;
    metadata.insert("general.architecture", arch);
    metadata.insert("tokenizer.ggml.eos_token_id", uint64_t{7});
    metadata.insert("tokenizer.ggml.eot_token_id", uint64_t{3});
    for (auto& [name, value] : values) metadata.insert(arch + "." + name, value);
    return parse_gguf_config(metadata, facts);
  }
  static std::string error_of(const Result<ModelConfig>& result) {
    return result ? "no error" : result.error().message;
  }
};

TEST_F(GgufConfig, Architectures) {
  const auto llama_config = parse("llama");
  ASSERT_TRUE(llama_config) << llama_config.error().message;
  EXPECT_TRUE(llama_config->rope.interleaved);
  EXPECT_EQ(llama_config->head_dim, 16);
  EXPECT_EQ(llama_config->rope.theta, 100000.0);
  EXPECT_EQ(llama_config->vocab_size, 384);
  EXPECT_TRUE(llama_config->tie_word_embeddings);
  EXPECT_EQ(llama_config->eos_token_ids, (std::vector<int64_t>{3, 7}));
  const auto qwen2_config = parse("qwen2", {}, {.has_output = true, .embedding_rows = 400});
  EXPECT_TRUE(qwen2_config->qkv_bias);
  EXPECT_FALSE(qwen2_config->rope.interleaved || qwen2_config->tie_word_embeddings);
  EXPECT_EQ(qwen2_config->vocab_size, 400);
  const auto qwen3_config = parse(
      "qwen3", {{"attention.key_length", uint64_t{32}}, {"attention.value_length", uint64_t{32}}});
  EXPECT_TRUE(qwen3_config->qk_norm);
  EXPECT_EQ(qwen3_config->head_dim, 32);
  EXPECT_EQ(error_of(parse("mamba")),
            "metadata general.architecture: \"mamba\" is not supported; supported: llama, qwen2, "
            "qwen3, qwen3moe, glm4moe, deepseek2, deepseek32, glm-dsa");
}

TEST_F(GgufConfig, RopeScaling) {
  EXPECT_EQ(parse("llama", {{"rope.scaling.factor", 2.0}})->rope.type, RopeType::kLinear);
  EXPECT_EQ(
      parse("llama", {{"rope.scaling.type", "none"}, {"rope.scaling.factor", 2.0}})->rope.type,
      RopeType::kDefault);
  const auto yarn = parse("qwen2", {{"rope.scaling.type", "yarn"},
                                    {"rope.scaling.factor", 4.0},
                                    {"rope.scaling.original_context_length", uint64_t{128}}});
  ASSERT_TRUE(yarn) << yarn.error().message;
  EXPECT_EQ(yarn->rope.type, RopeType::kYarn);
  EXPECT_EQ(yarn->rope.original_max_position, 128);
  EXPECT_DOUBLE_EQ(yarn->rope.attention_factor, 0.1 * std::log(4.0) + 1);
  const auto divided = parse("llama", {}, {.rope_freqs = std::vector<float>(8, 2.0f)});
  EXPECT_EQ(divided->rope.type, RopeType::kDefault);
  EXPECT_EQ(divided->rope.freq_divisors.size(), 8u);
  EXPECT_EQ(error_of(parse("llama", {}, {.rope_freqs = std::vector<float>(8, 0.0f)})),
            "rope_freqs.weight: found 0, expected numbers above 0");
  EXPECT_EQ(error_of(parse("llama", {{"rope.scaling.type", "longrope"}})),
            "metadata llama.rope.scaling.type: found \"longrope\", expected none, linear or yarn");
}

TEST_F(GgufConfig, BadKeysAreErrorsThatNameThem) {
  struct Row {
    const char* name;
    GgufValue value;
    const char* message;
  };
  const Row table[] = {
      {"embedding_length", uint64_t{0},
       "metadata llama.embedding_length: found 0, expected 1 to 16777216"},
      {"embedding_length", int64_t{-4},
       "metadata llama.embedding_length: found -4, expected 1 to 16777216"},
      {"block_count", std::string("four"),
       "metadata llama.block_count: found string \"four\", expected an integer"},
      {"attention.head_count", uint64_t{7},
       "metadata llama.attention.head_count: found 7, expected a divisor of embedding_length 128, "
       "as "
       "there is no attention.key_length"},
      {"attention.head_count_kv", uint64_t{3},
       "number of KV heads: found 3, expected a divisor of the 8 heads"},
      {"attention.value_length", uint64_t{8},
       "metadata llama.attention.value_length: found 8, expected the key length, 16"},
      {"attention.layer_norm_rms_epsilon", 2.0,
       "metadata llama.attention.layer_norm_rms_epsilon: found 2, expected a number above 0 and up "
       "to 0.5"},
      {"rope.freq_base", 0.5, "metadata llama.rope.freq_base: found 0.5, expected at least 1.001"},
      {"rope.freq_base", 1.0, "metadata llama.rope.freq_base: found 1, expected at least 1.001"},
      {"rope.dimension_count", uint64_t{17},
       "rotary dimensions: found 17, expected an even number up to head_dim 16"},
      {"expert_count", uint64_t{8},
       "metadata llama.expert_count: found 8, expected 0: mixtures of experts are not supported in "
       "this architecture"},
      {"attention.sliding_window", uint64_t{4096},
       "metadata llama.attention.sliding_window: found 4096, expected none: sliding windows are "
       "not "
       "supported"},
      {"attention.causal", false, "metadata llama.attention.causal: found false, expected true"},
      {"logit_scale", 2.0,
       "metadata llama.logit_scale: found number 2; this key is not understood and may change what "
       "the model computes"},
  };
  for (const Row& row : table) {
    EXPECT_EQ(error_of(parse("llama", {{row.name, row.value}})), row.message);
  }
}

}  // namespace
}  // namespace millrace
