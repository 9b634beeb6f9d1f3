// config.json: the fields that all models have, and the order in which the parts are read.
#include <algorithm>
#include <set>
#include <string>

#include "base/describe_json.h"
#include "config/hf_quantization.h"
#include "config/hf_rope.h"
#include "config/hf_sparse.h"
#include "config/json_fields.h"
#include "config/model_config.h"

namespace millrace {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxPosition = int64_t{1} << 30;
constexpr Range<int64_t> kSizeRange{1, kMaxSize};
constexpr double kDefaultEps = 1e-6;  // the default of most classes
constexpr double kDefaultGlmEps = 1e-5;

// Fields that say nothing about what is computed in inference: bookkeeping, training, generation.
constexpr std::string_view kHarmless[] = {"model_type",
                                          "transformers_version",
                                          "use_cache",
                                          "initializer_range",
                                          "attention_dropout",
                                          "hidden_dropout",
                                          "pretraining_tp",
                                          "pad_token_id",
                                          "auto_map",
                                          "tokenizer_class",
                                          "task_specific_params",
                                          "problem_type",
                                          "id2label",
                                          "label2id",
                                          "max_window_layers",
                                          "attn_implementation",
                                          "is_llama_config",
                                          "transformers.js_config",
                                          "return_dict",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "chunk_size_feed_forward",
                                          "gradient_checkpointing",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "cross_attention_hidden_size",
                                          "decoder_start_token_id",
                                          "diversity_penalty",
                                          "do_sample",
                                          "early_stopping",
                                          "encoder_no_repeat_ngram_size",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "length_penalty",
                                          "max_length",
                                          "max_new_tokens",
                                          "max_sequence_length",
                                          "min_length",
                                          "no_repeat_ngram_size",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_return_sequences",
                                          "output_scores",
                                          "prefix",
                                          "remove_invalid_values",
                                          "repetition_penalty",
                                          "return_dict_in_generate",
                                          "sep_token_id",
                                          "suppress_tokens",
                                          "temperature",
                                          "tf_legacy_loss",
                                          "top_k",
                                          "top_p",
                                          "typical_p"};
constexpr std::string_view kHarmlessPrefixes[] = {"_", "unsloth_"};

struct ModelType {
  std::string_view name;
  Architecture architecture;
};

constexpr ModelType kModelTypes[] = {{"llama", Architecture::kLlama},
                                     {"qwen2", Architecture::kQwen2},
                                     {"qwen3", Architecture::kQwen3},
                                     {"qwen3_moe", Architecture::kQwen3Moe},
                                     {"glm4_moe", Architecture::kGlm4Moe},
                                     {"deepseek_v3", Architecture::kDeepseekV3},
                                     {"deepseek_v32", Architecture::kDeepseekV32},
                                     {"glm_moe_dsa", Architecture::kGlmMoeDsa}};

std::unexpected<Error> unknown_architecture(std::string_view field, std::string_view found) {
  std::string supported;
  for (const ModelType& type : kModelTypes) {
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", name_of(type.architecture));
  }
  return fail("field {}: architecture {} is not supported; supported: {}", field, found, supported);
}

Result<Architecture> parse_architecture(JsonFields& fields) {
  if (const nlohmann::json* list = fields.find("architectures")) {
    if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
      return fields.wrong("architectures", *list, "an array of one name");
    }
    const auto& name = list->front().get_ref<const std::string&>();
    for (const ModelType& type : kModelTypes) {
      if (name == name_of(type.architecture)) return type.architecture;
    }
    return unknown_architecture("architectures", describe(list->front()));
  }
  MR_ASSIGN(const auto name, fields.find_string("model_type"));
  if (!name) return fail("field architectures: missing, expected an array of one name");
  for (const ModelType& type : kModelTypes) {
    if (*name == type.name) return type.architecture;
  }
  return unknown_architecture("model_type", describe(nlohmann::json(*name)));
}

Result<> parse_sizes(JsonFields& fields, ModelConfig& config) {
  MR_ASSIGN(config.vocab_size, fields.get_int("vocab_size", kSizeRange));
  MR_ASSIGN(const int64_t hidden, fields.get_int("hidden_size", kSizeRange));
  MR_ASSIGN(const int64_t intermediate, fields.get_int("intermediate_size", kSizeRange));
  MR_ASSIGN(const int64_t layers, fields.get_int("num_hidden_layers", {1, kMaxLayers}));
  MR_ASSIGN(const int64_t heads, fields.get_int("num_attention_heads", kSizeRange));
  MR_ASSIGN(config.max_position_embeddings,
            fields.get_int("max_position_embeddings", {1, kMaxPosition}));
  config.hidden_size = static_cast<int>(hidden);
  config.intermediate_size = static_cast<int>(intermediate);
  config.num_layers = static_cast<int>(layers);
  config.num_heads = static_cast<int>(heads);
  if (has_mla(config.architecture)) return parse_hf_mla(fields, config);
  MR_ASSIGN(const auto kv_heads, fields.find_int("num_key_value_heads", {1, heads}));
  MR_ASSIGN(const auto head_dim, fields.find_int("head_dim", kSizeRange));
  if (!head_dim && hidden % heads != 0) {
    return fail(
        "field num_attention_heads: found {}, expected a divisor of hidden_size {}, as "
        "there is no head_dim",
        heads, hidden);
  }
  config.num_kv_heads = static_cast<int>(kv_heads.value_or(heads));
  config.head_dim = static_cast<int>(head_dim.value_or(hidden / heads));
  return {};
}

bool is_qwen(Architecture architecture) {
  return architecture == Architecture::kQwen2 || architecture == Architecture::kQwen3 ||
         architecture == Architecture::kQwen3Moe;
}

// Every layer must see all earlier tokens, or those that its indexer selects.
Result<> check_full_attention(JsonFields& fields, const ModelConfig& config) {
  MR_ASSIGN(const auto sliding, fields.find_bool("use_sliding_window"));
  if (sliding.value_or(false)) {
    return fail(
        "field use_sliding_window: found true, expected false: sliding windows are not "
        "supported");
  }
  const nlohmann::json* window = fields.find("sliding_window");
  // In Qwen's files the window is only used if use_sliding_window says so.
  if (window != nullptr && !is_qwen(config.architecture)) {
    return fields.wrong("sliding_window", *window, "null: sliding windows are not supported");
  }
  const nlohmann::json* types = fields.find("layer_types");
  if (types == nullptr) return {};
  if (!types->is_array() || types->size() != static_cast<size_t>(config.num_layers)) {
    return fields.wrong("layer_types", *types, fmt::format("an array of {}", config.num_layers));
  }
  const std::string_view expected =
      has_indexer(config.architecture) ? "indexed_attention" : "full_attention";
  for (const auto& type : *types) {
    if (type != expected) {
      return fields.wrong("layer_types", type, fmt::format("\"{}\" in each layer", expected));
    }
  }
  return {};
}

Result<> parse_biases_and_norms(JsonFields& fields, ModelConfig& config) {
  const Architecture arch = config.architecture;
  MR_ASSIGN(const auto attention_bias, fields.find_bool("attention_bias"));
  MR_ASSIGN(const auto mlp_bias, fields.find_bool("mlp_bias"));
  const bool is_qwen2 = arch == Architecture::kQwen2;
  const bool is_glm = arch == Architecture::kGlm4Moe;
  config.qkv_bias = is_qwen2 || attention_bias.value_or(false);
  config.o_bias = !is_qwen2 && !is_glm && attention_bias.value_or(false);
  config.mlp_bias = mlp_bias.value_or(false);
  config.qk_norm = arch == Architecture::kQwen3 || arch == Architecture::kQwen3Moe;
  if (is_glm) {
    MR_ASSIGN(const auto qk_norm, fields.find_bool("use_qk_norm"));
    config.qk_norm = qk_norm.value_or(false);
  }
  if (config.mlp_bias && arch != Architecture::kLlama) {
    return fail("field mlp_bias: found true, expected false for {}", name_of(arch));
  }
  MR_ASSIGN(const auto eps, fields.find_number("rms_norm_eps", {1e-30, 0.5}));
  const bool glm_eps = is_glm || arch == Architecture::kGlmMoeDsa;
  config.rms_norm_eps = static_cast<float>(eps.value_or(glm_eps ? kDefaultGlmEps : kDefaultEps));
  MR_ASSIGN(const auto activation, fields.find_string("hidden_act"));
  if (activation.value_or("silu") != "silu") {
    return fail("field hidden_act: found \"{}\", expected \"silu\"", one_short_line(*activation));
  }
  return {};
}

Result<> parse_rope(JsonFields& fields, ModelConfig& config) {
  HfRopeSpec spec;
  spec.head_dim = config.mla ? config.mla->qk_rope_head_dim : config.head_dim;
  spec.max_position_embeddings = config.max_position_embeddings;
  if (config.architecture == Architecture::kGlm4Moe) {
    spec.may_be_partial = true;
    spec.default_partial = 0.5;
  }
  MR_ASSIGN(const HfRope rope, parse_hf_rope(fields, spec));
  return apply_hf_rope(fields, rope, config);
}

Result<> parse_dtype_field(JsonFields& fields, ModelConfig& config) {
  MR_ASSIGN(const auto current, fields.find_string("dtype"));
  MR_ASSIGN(const auto older, fields.find_string("torch_dtype"));
  const auto& name = current ? current : older;
  if (!name) return {};
  const auto dtype = parse_dtype(*name);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kF16 && *dtype != DType::kBF16)) {
    return fail("field dtype: found \"{}\", expected float32, float16 or bfloat16",
                one_short_line(*name));
  }
  config.dtype = *dtype;
  return {};
}

Result<> parse_tokens(JsonFields& fields, ModelConfig& config) {
  MR_ASSIGN(const std::vector<int64_t> ids, parse_eos_token_ids(fields.find("eos_token_id")));
  config.eos_token_ids = ids;
  if (const nlohmann::json* bos = fields.find("bos_token_id")) {
    if (!bos->is_number_integer()) return fields.wrong("bos_token_id", *bos, "a token");
    // Some files say -1 for "none".
    if (const auto id = bos->get<int64_t>(); id >= 0) config.bos_token_id = id;
  }
  return {};
}

}  // namespace

Result<std::vector<int64_t>> parse_eos_token_ids(const nlohmann::json* field) {
  if (field == nullptr || field->is_null()) return std::vector<int64_t>{};
  std::set<int64_t> ids;
  const nlohmann::json list = field->is_array() ? *field : nlohmann::json::array({*field});
  for (const auto& id : list) {
    if (!id.is_number_integer()) {
      return fail("field eos_token_id: found {}, expected a token or an array of tokens",
                  describe(id));
    }
    ids.insert(id.get<int64_t>());
  }
  return std::vector<int64_t>(ids.begin(), ids.end());
}

Result<ModelConfig> parse_hf_config(const nlohmann::json& json) {
  if (!json.is_object()) return fail("found {}, expected an object", describe(json));
  JsonFields fields(json);
  ModelConfig config;
  MR_ASSIGN(config.architecture, parse_architecture(fields));
  MR_TRY(parse_sizes(fields, config));
  MR_TRY(parse_rope(fields, config));
  if (has_indexer(config.architecture)) MR_TRY(parse_hf_indexer(fields, config));
  if (has_experts(config.architecture)) MR_TRY(parse_hf_moe(fields, config));
  MR_TRY(parse_biases_and_norms(fields, config));
  MR_TRY(check_full_attention(fields, config));
  MR_TRY(parse_dtype_field(fields, config));
  MR_TRY(parse_tokens(fields, config));
  MR_ASSIGN(const auto tied, fields.find_bool("tie_word_embeddings"));
  config.tie_word_embeddings = tied.value_or(false);
  if (const nlohmann::json* quantization = fields.find("quantization_config")) {
    MR_ASSIGN(config.quantization, parse_hf_quantization(*quantization));
  }
  fields.ignore(kHarmless);
  MR_TRY(fields.check_rest(kHarmlessPrefixes));
  MR_TRY(validate(config));
  return config;
}

}  // namespace millrace
