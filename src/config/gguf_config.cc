// GGUF metadata: the keys that all models have, and the order in which the parts are read.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "base/describe_json.h"
#include "config/gguf_fields.h"
#include "config/gguf_sparse.h"
#include "config/model_config.h"
#include "config/model_rules.h"

namespace millrace {
namespace {

// Keys after "<architecture>." that are read below, in every architecture.
constexpr std::string_view kUnderstood[] = {"block_count",
                                            "context_length",
                                            "embedding_length",
                                            "feed_forward_length",
                                            "vocab_size",
                                            "attention.head_count",
                                            "attention.head_count_kv",
                                            "attention.key_length",
                                            "attention.value_length",
                                            "attention.layer_norm_rms_epsilon",
                                            "attention.causal",
                                            "attention.sliding_window",
                                            "rope.dimension_count",
                                            "rope.freq_base",
                                            "rope.scale_linear",
                                            "rope.scaling.type",
                                            "rope.scaling.factor",
                                            "rope.scaling.original_context_length",
                                            "rope.scaling.attn_factor",
                                            "rope.scaling.yarn_attn_factor",
                                            "rope.scaling.yarn_ext_factor",
                                            "rope.scaling.yarn_beta_fast",
                                            "rope.scaling.yarn_beta_slow",
                                            "expert_count",
                                            "expert_used_count"};
// Keys that say nothing about what is computed.
constexpr std::string_view kHarmless[] = {"rope.scaling.finetuned", "tensor_data_layout"};

struct GgufName {
  std::string_view name;
  Architecture architecture;
};

constexpr GgufName kNames[] = {{"llama", Architecture::kLlama},
                               {"qwen2", Architecture::kQwen2},
                               {"qwen3", Architecture::kQwen3},
                               {"qwen3moe", Architecture::kQwen3Moe},
                               {"glm4moe", Architecture::kGlm4Moe},
                               {"deepseek2", Architecture::kDeepseekV3},
                               {"deepseek32", Architecture::kDeepseekV32},
                               {"glm-dsa", Architecture::kGlmMoeDsa}};

Result<Architecture> parse_architecture(const std::string& name) {
  std::string supported;
  for (const GgufName& known : kNames) {
    if (name == known.name) return known.architecture;
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", known.name);
  }
  return fail("metadata general.architecture: \"{}\" is not supported; supported: {}",
              one_short_line(name), supported);
}

bool is_known_key(std::string_view name, Architecture architecture) {
  return std::ranges::find(kUnderstood, name) != std::end(kUnderstood) ||
         std::ranges::find(kHarmless, name) != std::end(kHarmless) ||
         is_sparse_gguf_key(name, architecture);
}

// A key below "<architecture>." that is not understood may change what the model computes.
Result<> check_keys(const ArchFields& fields, Architecture architecture) {
  const std::string prefix = fields.key("");
  for (const auto& [key, value] : fields.metadata().values()) {
    if (!key.starts_with(prefix)) continue;
    if (is_known_key(std::string_view(key).substr(prefix.size()), architecture)) continue;
    return fail(
        "metadata {}: found {}; this key is not understood and may change what the model "
        "computes",
        key, describe(value));
  }
  MR_ASSIGN(const auto experts, fields.metadata().find_int(fields.key("expert_count")));
  if (experts.value_or(0) != 0 && !has_experts(architecture)) {
    return fail(
        "metadata {}: found {}, expected 0: mixtures of experts are not supported in this "
        "architecture",
        fields.key("expert_count"), *experts);
  }
  MR_ASSIGN(const auto window, fields.metadata().find_int(fields.key("attention.sliding_window")));
  if (window.value_or(0) != 0) {
    return fail("metadata {}: found {}, expected none: sliding windows are not supported",
                fields.key("attention.sliding_window"), *window);
  }
  MR_ASSIGN(const auto causal, fields.metadata().find_bool(fields.key("attention.causal")));
  if (!causal.value_or(true)) {
    return fail("metadata {}: found false, expected true", fields.key("attention.causal"));
  }
  return {};
}

Result<> parse_sizes(const ArchFields& fields, ModelConfig& config) {
  MR_ASSIGN(config.hidden_size, fields.get_size("embedding_length"));
  MR_ASSIGN(config.intermediate_size, fields.get_size("feed_forward_length"));
  MR_ASSIGN(config.num_layers, fields.get_size("block_count"));
  MR_ASSIGN(config.num_heads, fields.get_size("attention.head_count"));
  MR_ASSIGN(config.max_position_embeddings, fields.get_size("context_length"));
  MR_ASSIGN(const auto eps, fields.find_positive("attention.layer_norm_rms_epsilon", 0.5));
  if (!eps) return fields.missing("attention.layer_norm_rms_epsilon", "a number");
  config.rms_norm_eps = static_cast<float>(*eps);
  if (has_mla(config.architecture)) return parse_gguf_mla(fields, config);
  MR_ASSIGN(const auto kv_heads, fields.find_size("attention.head_count_kv"));
  config.num_kv_heads = kv_heads.value_or(config.num_heads);
  MR_ASSIGN(const auto key_length, fields.find_size("attention.key_length"));
  MR_ASSIGN(const auto value_length, fields.find_size("attention.value_length"));
  if (!key_length && config.hidden_size % config.num_heads != 0) {
    return fields.out_of_range("attention.head_count", config.num_heads,
                               fmt::format("a divisor of embedding_length {}, as there is no "
                                           "attention.key_length",
                                           config.hidden_size));
  }
  config.head_dim = key_length.value_or(config.hidden_size / config.num_heads);
  if (value_length && *value_length != config.head_dim) {
    return fields.out_of_range("attention.value_length", *value_length,
                               fmt::format("the key length, {}", config.head_dim));
  }
  return {};
}

// The embedding decides: it may be padded beyond the tokenizer's tokens.
Result<> parse_vocab(const ArchFields& fields, const GgufTensorFacts& facts, ModelConfig& config) {
  const GgufMetadata& metadata = fields.metadata();
  int64_t tokens = 0;
  if (metadata.contains("tokenizer.ggml.tokens")) {
    MR_ASSIGN(const auto* list, metadata.get_strings("tokenizer.ggml.tokens"));
    tokens = static_cast<int64_t>(list->size());
  }
  MR_ASSIGN(const auto stored, fields.find_size("vocab_size"));
  config.vocab_size = facts.embedding_rows > 0 ? facts.embedding_rows
                      : stored                 ? int64_t{*stored}
                                               : tokens;
  if (config.vocab_size < tokens) {
    return fail("tokenizer.ggml.tokens: found {} tokens, expected at most the embedding's {} rows",
                tokens, config.vocab_size);
  }
  return {};
}

Result<> parse_yarn(const ArchFields& fields, Architecture architecture, RopeConfig& rope) {
  MR_ASSIGN(const auto beta_fast, fields.find_positive("rope.scaling.yarn_beta_fast", 1e6));
  MR_ASSIGN(const auto beta_slow, fields.find_positive("rope.scaling.yarn_beta_slow", 1e6));
  MR_ASSIGN(const auto ext, fields.find_positive("rope.scaling.yarn_ext_factor", 1e6));
  MR_ASSIGN(const auto attn, fields.find_positive("rope.scaling.attn_factor", 1e6));
  MR_ASSIGN(const auto yarn_attn, fields.find_positive("rope.scaling.yarn_attn_factor", 1e6));
  if (ext.value_or(1.0) != 1.0) {
    return fields.out_of_range("rope.scaling.yarn_ext_factor", *ext, "1");
  }
  rope.beta_fast = beta_fast.value_or(rope.beta_fast);
  rope.beta_slow = beta_slow.value_or(rope.beta_slow);
  if (rope.beta_fast < rope.beta_slow) {
    return fields.out_of_range("rope.scaling.yarn_beta_fast", rope.beta_fast,
                               fmt::format("at least yarn_beta_slow {}", rope.beta_slow));
  }
  // In GGUF the stored factor multiplies the one that YaRN derives from its scale.
  rope.attention_factor =
      attn.value_or(yarn_attn.value_or(1.0)) * yarn_attention_factor(rope.factor, 0, 0);
  if (has_mla(architecture)) return apply_gguf_mscale(fields, architecture, rope);
  return {};
}

Result<> parse_rope_scaling(const ArchFields& fields, Architecture architecture, RopeConfig& rope) {
  MR_ASSIGN(const auto type, fields.metadata().find_string(fields.key("rope.scaling.type")));
  MR_ASSIGN(const auto factor, fields.find_positive("rope.scaling.factor", 1e4));
  MR_ASSIGN(const auto older, fields.find_positive("rope.scale_linear", 1e4));
  rope.factor = factor.value_or(older.value_or(1.0));
  if (rope.factor < 1.0)
    return fields.out_of_range("rope.scaling.factor", rope.factor, "at least 1");
  // A factor without a type is a linear one.
  const std::string name = type.value_or(rope.factor != 1.0 ? "linear" : "none");
  if (name == "none") {
    rope.factor = 1.0;
    return {};
  }
  if (name == "linear") {
    rope.type = rope.factor != 1.0 ? RopeType::kLinear : RopeType::kDefault;
    return {};
  }
  if (name == "yarn") {
    rope.type = RopeType::kYarn;
    return parse_yarn(fields, architecture, rope);
  }
  return fields.out_of_range("rope.scaling.type", "\"" + one_short_line(name) + "\"",
                             "none, linear or yarn");
}

// GLM rotates half of a head if nothing is said.
int default_rotary_dim(const ModelConfig& config) {
  return config.architecture == Architecture::kGlm4Moe ? config.head_dim / 2 : config.head_dim;
}

Result<> parse_rope(const ArchFields& fields, const GgufTensorFacts& facts, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  MR_ASSIGN(const auto theta, fields.find_positive("rope.freq_base", 1e12));
  rope.theta = theta.value_or(10000.0);
  if (rope.theta < kLeastRopeTheta) {
    return fields.out_of_range("rope.freq_base", rope.theta,
                               fmt::format("at least {}", kLeastRopeTheta));
  }
  MR_ASSIGN(const auto dims, fields.find_size("rope.dimension_count"));
  rope.rotary_dim =
      dims.value_or(config.mla ? config.mla->qk_rope_head_dim : default_rotary_dim(config));
  // Rows of q and k are stored for neighbouring pairs in llama models, and are computed in such
  // pairs in latent attention.
  rope.interleaved = config.architecture == Architecture::kLlama || config.mla.has_value();
  MR_ASSIGN(const auto original, fields.find_size("rope.scaling.original_context_length"));
  rope.original_max_position = original.value_or(static_cast<int>(config.max_position_embeddings));
  MR_TRY(parse_rope_scaling(fields, config.architecture, rope));
  rope.freq_divisors = facts.rope_freqs;
  if (!rope.freq_divisors.empty() && rope.type != RopeType::kDefault) {
    return fail("rope_freqs.weight together with rope scaling \"{}\" is not supported",
                name_of(rope.type));
  }
  if (!rope.freq_divisors.empty() &&
      rope.freq_divisors.size() != static_cast<size_t>(rope.rotary_dim / 2)) {
    return fail("rope_freqs.weight: found {} values, expected {} (half the rotary dimensions)",
                rope.freq_divisors.size(), rope.rotary_dim / 2);
  }
  for (const float divisor : rope.freq_divisors) {
    if (!(divisor > 0 && std::isfinite(divisor))) {
      return fail("rope_freqs.weight: found {}, expected numbers above 0", divisor);
    }
  }
  return {};
}

Result<> parse_tokens(const GgufMetadata& metadata, ModelConfig& config) {
  std::set<int64_t> ends;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    MR_ASSIGN(const auto id, metadata.find_int(key));
    if (id) ends.insert(*id);
  }
  config.eos_token_ids.assign(ends.begin(), ends.end());
  MR_ASSIGN(config.bos_token_id, metadata.find_int("tokenizer.ggml.bos_token_id"));
  return {};
}

}  // namespace

Result<ModelConfig> parse_gguf_config(const GgufMetadata& metadata, const GgufTensorFacts& facts) {
  MR_ASSIGN(const std::string arch, metadata.get_string("general.architecture"));
  ModelConfig config;
  MR_ASSIGN(config.architecture, parse_architecture(arch));
  const ArchFields fields(metadata, arch);
  MR_TRY(check_keys(fields, config.architecture));
  MR_TRY(parse_sizes(fields, config));
  if (has_experts(config.architecture)) MR_TRY(take_off_gguf_mtp_layers(fields, config));
  MR_TRY(parse_vocab(fields, facts, config));
  MR_TRY(parse_rope(fields, facts, config));
  MR_TRY(parse_tokens(metadata, config));
  if (has_experts(config.architecture)) MR_TRY(parse_gguf_moe(fields, facts, config));
  if (has_indexer(config.architecture)) MR_TRY(parse_gguf_indexer(fields, facts, config));
  if (config.mla) MR_TRY(set_gguf_softmax_scale(fields, config));
  config.tie_word_embeddings = !facts.has_output;
  config.qkv_bias = facts.has_q_bias || config.architecture == Architecture::kQwen2;
  config.o_bias = facts.has_o_bias;
  config.mlp_bias = facts.has_mlp_bias;
  config.qk_norm = facts.has_qk_norm || config.architecture == Architecture::kQwen3 ||
                   config.architecture == Architecture::kQwen3Moe;
  config.dtype = facts.dtype;
  MR_TRY(validate(config));
  return config;
}

}  // namespace millrace
