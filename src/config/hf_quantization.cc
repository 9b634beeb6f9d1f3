#include "config/hf_quantization.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/describe_json.h"
#include "config/json_fields.h"

namespace millrace {
namespace {

constexpr int kFp8Block = 128;
constexpr int kGroupUnit = 32;  // what packed blocks and activation groups divide
constexpr Range<int64_t> kAnyInt{-65536, 65536};

std::unexpected<Error> wrong_text(std::string_view name, std::string_view found,
                                  std::string_view expected) {
  return fail("field quantization_config.{}: found \"{}\", expected {}", name,
              one_short_line(found), expected);
}

// A field that must hold one of `expected` if it is there.
Result<> expect_text(JsonFields& fields, std::string_view name,
                     std::initializer_list<std::string_view> expected) {
  MR_ASSIGN(const auto found, fields.find_string(name));
  if (!found || std::ranges::find(expected, std::string_view(*found)) != expected.end()) return {};
  return wrong_text(name, *found, fmt::format("\"{}\"", *expected.begin()));
}

// An integer under the first of two names that is there.
Result<int64_t> get_either(JsonFields& fields, std::string_view name, std::string_view other) {
  MR_ASSIGN(const auto second, fields.find_int(other, kAnyInt));
  MR_ASSIGN(const auto first, fields.find_int(name, kAnyInt));
  if (first) return *first;
  if (second) return *second;
  return fields.missing(name, "an integer");
}

Result<> check_bits(JsonFields& fields, std::string_view name, int64_t bits) {
  if (bits == 4) return {};
  return fields.wrong(name, bits, "4: other widths are not supported");
}

Result<int> check_group(JsonFields& fields, std::string_view name, int64_t group) {
  if (group >= kGroupUnit && group % kGroupUnit == 0) return static_cast<int>(group);
  return fields.wrong(name, group, fmt::format("a multiple of {}", kGroupUnit));
}

void append(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

Result<> parse_fp8(JsonFields& fields, QuantizationConfig& out) {
  out.method = QuantizationMethod::kBlockFp8;
  MR_TRY(expect_text(fields, "fmt", {"e4m3"}));
  const nlohmann::json* block = fields.find("weight_block_size");
  const auto expected = fmt::format("[{}, {}]", kFp8Block, kFp8Block);
  if (block == nullptr) return fields.missing("weight_block_size", expected);
  if (*block != nlohmann::json::array({kFp8Block, kFp8Block})) {
    return fields.wrong("weight_block_size", *block, expected);
  }
  out.block_rows = out.block_cols = kFp8Block;
  for (const auto name : {"modules_to_not_convert", "ignored_layers"}) {
    MR_ASSIGN(const auto modules, fields.find_strings(name));
    append(out.not_converted, modules);
  }
  // How activations are rounded, and that scales are powers of two: weights are what they are.
  constexpr std::string_view kHarmless[] = {"activation_scheme", "scale_fmt", "dequantize"};
  fields.ignore(kHarmless);
  return {};
}

// Rules by module: "-:REGEX" leaves modules as they are; others change their quantisation.
Result<> parse_gptq_rules(JsonFields& fields, QuantizationConfig& out) {
  const nlohmann::json* rules = fields.find("dynamic");
  if (rules == nullptr) return {};
  if (!rules->is_object()) return fields.wrong("dynamic", *rules, "an object");
  for (const auto& [rule, changes] : rules->items()) {
    if (!rule.starts_with("-:")) {
      return wrong_text("dynamic", rule,
                        "only rules that begin with -: (a module's own width is not supported)");
    }
    out.not_converted.push_back("re:" + rule.substr(2));
  }
  return {};
}

Result<> parse_gptq(JsonFields& fields, QuantizationConfig& out) {
  out.method = QuantizationMethod::kGptq;
  MR_ASSIGN(const int64_t bits, fields.get_int("bits", kAnyInt));
  MR_TRY(check_bits(fields, "bits", bits));
  MR_ASSIGN(const int64_t group, fields.get_int("group_size", kAnyInt));
  MR_ASSIGN(out.group_size, check_group(fields, "group_size", group));
  MR_ASSIGN(const bool act_order, fields.get_bool("desc_act"));
  if (act_order) {
    return fail(
        "field quantization_config.desc_act: found true, expected false: act-order (groups of "
        "scattered inputs) is not supported");
  }
  MR_ASSIGN(const auto symmetric, fields.find_bool("sym"));
  out.symmetric = symmetric.value_or(true);
  MR_ASSIGN(const auto format, fields.find_string("checkpoint_format"));
  if (format && *format != "gptq" && *format != "gptq_v2") {
    return wrong_text("checkpoint_format", *format, "\"gptq\" or \"gptq_v2\"");
  }
  out.zeros_less_one = format.value_or("gptq") == "gptq";
  MR_TRY(expect_text(fields, "pack_dtype", {"int32"}));
  MR_ASSIGN(const auto head, fields.find_bool("lm_head"));
  if (!head.value_or(false)) out.not_converted.push_back("lm_head");
  MR_ASSIGN(const auto modules, fields.find_strings("modules_to_not_convert"));
  append(out.not_converted, modules);
  MR_TRY(parse_gptq_rules(fields, out));
  // How the codes were found, and which kernels other engines should take.
  constexpr std::string_view kHarmless[] = {"damp_percent",
                                            "damp_auto_increment",
                                            "true_sequential",
                                            "static_groups",
                                            "model_name_or_path",
                                            "model_file_base_name",
                                            "meta",
                                            "modules_in_block_to_quantize",
                                            "tokenizer",
                                            "dataset",
                                            "block_name_to_quantize",
                                            "model_seqlen",
                                            "batch_size",
                                            "pad_token_id",
                                            "use_cuda_fp16",
                                            "use_exllama",
                                            "exllama_config",
                                            "max_input_length",
                                            "cache_block_outputs",
                                            "module_name_preceding_first_block",
                                            "backend",
                                            "mse",
                                            "quantizer",

                                            "disable_exllama",
                                            "hessian_chunk_size"};
  fields.ignore(kHarmless);
  return {};
}

Result<> parse_awq(JsonFields& fields, QuantizationConfig& out) {
  out.method = QuantizationMethod::kAwq;
  MR_ASSIGN(const int64_t bits, get_either(fields, "bits", "w_bit"));
  MR_TRY(check_bits(fields, "bits", bits));
  MR_ASSIGN(const int64_t group, get_either(fields, "group_size", "q_group_size"));
  MR_ASSIGN(out.group_size, check_group(fields, "group_size", group));
  MR_ASSIGN(const bool zero_point, fields.get_bool("zero_point"));
  out.symmetric = !zero_point;
  MR_TRY(expect_text(fields, "version", {"gemm", "GEMM"}));
  MR_ASSIGN(const auto modules, fields.find_strings("modules_to_not_convert"));
  append(out.not_converted, modules);
  constexpr std::string_view kHarmless[] = {"backend", "do_fuse", "exllama_config",
                                            "fuse_max_seq_len", "modules_to_fuse"};
  fields.ignore(kHarmless);
  return {};
}

Result<> parse_compressed_weights(const nlohmann::json& object, QuantizationConfig& out) {
  JsonFields weights(object, "quantization_config.config_groups.weights.");
  MR_ASSIGN(const int64_t bits, weights.get_int("num_bits", kAnyInt));
  MR_TRY(check_bits(weights, "num_bits", bits));
  const std::pair<std::string_view, std::string_view> table[] = {{"type", "int"},
                                                                 {"strategy", "group"}};
  for (const auto& [name, expected] : table) {
    MR_ASSIGN(const auto found, weights.find_string(name));
    if (!found) return weights.missing(name, fmt::format("\"{}\"", expected));
    if (*found != expected) {
      return weights.wrong(name, *found, fmt::format("\"{}\"", expected));
    }
  }
  MR_ASSIGN(const int64_t group, weights.get_int("group_size", kAnyInt));
  MR_ASSIGN(out.group_size, check_group(weights, "group_size", group));
  MR_ASSIGN(out.symmetric, weights.get_bool("symmetric"));
  MR_ASSIGN(const auto dynamic, weights.find_bool("dynamic"));
  if (dynamic.value_or(false)) {
    return weights.wrong("dynamic", true, "false: weights have stored scales");
  }
  // With "weight" the groups keep the inputs' order.
  const nlohmann::json* order = weights.find("actorder");
  if (order != nullptr && *order != false && *order != "weight" && *order != "static") {
    return weights.wrong("actorder", *order,
                         "null or \"weight\": groups of scattered inputs are not supported");
  }
  // The types of what is stored are the tensors' own.
  constexpr std::string_view kHarmless[] = {"observer", "observer_kwargs", "scale_dtype",
                                            "zp_dtype"};
  weights.ignore(kHarmless);
  return weights.check_rest({});
}

Result<> parse_compressed(JsonFields& fields, QuantizationConfig& out) {
  out.method = QuantizationMethod::kCompressedTensors;
  MR_ASSIGN(const auto format, fields.find_string("format"));
  if (!format) return fields.missing("format", "\"pack-quantized\"");
  if (*format != "pack-quantized") return wrong_text("format", *format, "\"pack-quantized\"");
  const nlohmann::json* groups = fields.find("config_groups");
  if (groups == nullptr) return fields.missing("config_groups", "an object of one group");
  if (!groups->is_object() || groups->size() != 1 || !groups->front().is_object()) {
    return fields.wrong("config_groups", *groups, "an object of one group");
  }
  JsonFields group(groups->front(), "quantization_config.config_groups.");
  const nlohmann::json* weights = group.find("weights");
  if (weights == nullptr) return group.missing("weights", "an object");
  if (!weights->is_object()) return group.wrong("weights", *weights, "an object");
  MR_TRY(parse_compressed_weights(*weights, out));
  if (const nlohmann::json* inputs = group.find("input_activations")) {
    return group.wrong("input_activations", *inputs, "null: quantised inputs are not supported");
  }
  MR_ASSIGN(const auto group_format, group.find_string("format"));
  if (group_format && *group_format != "pack-quantized") {
    return group.wrong("format", *group_format, "\"pack-quantized\"");
  }
  // Which modules: the tensors tell.
  constexpr std::string_view kTargets[] = {"targets"};
  group.ignore(kTargets);
  MR_TRY(group.check_rest({}));
  MR_ASSIGN(out.not_converted, fields.find_strings("ignore"));
  MR_TRY(expect_text(fields, "quantization_status", {"compressed"}));
  constexpr std::string_view kHarmless[] = {"global_compression_ratio", "version"};
  fields.ignore(kHarmless);
  return {};
}

}  // namespace

Result<QuantizationConfig> parse_hf_quantization(const nlohmann::json& config) {
  if (!config.is_object()) {
    return fail("field quantization_config: found {}, expected an object", describe(config));
  }
  JsonFields fields(config, "quantization_config.");
  MR_ASSIGN(const auto method, fields.find_string("quant_method"));
  constexpr std::string_view kExpected = "\"fp8\", \"gptq\", \"awq\" or \"compressed-tensors\"";
  if (!method) return fields.missing("quant_method", kExpected);
  QuantizationConfig out;
  if (*method == "fp8") {
    MR_TRY(parse_fp8(fields, out));
  } else if (*method == "gptq") {
    MR_TRY(parse_gptq(fields, out));
  } else if (*method == "awq") {
    MR_TRY(parse_awq(fields, out));
  } else if (*method == "compressed-tensors") {
    MR_TRY(parse_compressed(fields, out));
  } else {
    return wrong_text("quant_method", *method, kExpected);
  }
  MR_TRY(fields.check_rest({}));
  return out;
}

}  // namespace millrace
