// `quantization_config` of config.json.
#include <gtest/gtest.h>

#include "config/hf_quantization.h"

namespace millrace {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr const char* kFp8 = R"({"activation_scheme": "dynamic", "fmt": "e4m3",
    "quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]})";
constexpr const char* kGptq = R"({"bits": 4, "checkpoint_format": "gptq", "damp_percent": 0.01,
    "desc_act": false, "group_size": 128, "lm_head": false, "model_file_base_name": null,
    "quant_method": "gptq", "static_groups": false, "sym": true, "true_sequential": true,
    "meta": {"quantizer": ["x:1"]}, "dynamic": {"-:.*mlp\\.gate$": {}}})";
constexpr const char* kAwq = R"({"backend": "autoawq", "bits": 4, "do_fuse": false,
    "group_size": 128, "modules_to_not_convert": ["gate"], "quant_method": "awq",
    "version": "gemm", "zero_point": true})";
constexpr const char* kCompressed = R"({"config_groups": {"group_0": {"format": "pack-quantized",
    "input_activations": null, "output_activations": null, "targets": ["Linear"],
    "weights": {"actorder": null, "block_structure": null, "dynamic": false, "group_size": 32,
      "num_bits": 4, "observer": "minmax", "observer_kwargs": {}, "strategy": "group",
      "symmetric": true, "type": "int"}}},
    "format": "pack-quantized", "global_compression_ratio": null,
    "ignore": ["lm_head", "re:.*mlp.gate$"], "kv_cache_scheme": null,
    "quant_method": "compressed-tensors", "quantization_status": "compressed",
    "sparsity_config": {}, "transform_config": {}, "version": "0.12.2"})";

QuantizationConfig parsed(const json& file) {
  auto config = parse_hf_quantization(file);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : QuantizationConfig{};
}

TEST(HfQuantization, BlockFp8) {
  const QuantizationConfig config = parsed(json::parse(kFp8));
  EXPECT_EQ(config.method, QuantizationMethod::kBlockFp8);
  EXPECT_EQ(config.block_rows, 128);
  EXPECT_EQ(config.block_cols, 128);
  EXPECT_EQ(config.not_converted, (Names{"lm_head", "model.layers.0.mlp.gate"}));
}

TEST(HfQuantization, Gptq) {
  json file = json::parse(kGptq);
  QuantizationConfig config = parsed(file);
  EXPECT_EQ(config.method, QuantizationMethod::kGptq);
  EXPECT_EQ(config.group_size, 128);
  EXPECT_TRUE(config.symmetric && config.zeros_less_one);
  EXPECT_EQ(config.not_converted, (Names{"lm_head", "re:.*mlp\\.gate$"}));
  file["sym"] = false;
  file["checkpoint_format"] = "gptq_v2";
  file["group_size"] = 64;
  config = parsed(file);
  EXPECT_FALSE(config.symmetric || config.zeros_less_one);
  EXPECT_EQ(config.group_size, 64);
  file.erase("checkpoint_format");
  EXPECT_TRUE(parsed(file).zeros_less_one);
}

TEST(HfQuantization, Awq) {
  json file = json::parse(kAwq);
  EXPECT_EQ(parsed(file).method, QuantizationMethod::kAwq);
  EXPECT_FALSE(parsed(file).symmetric);
  EXPECT_EQ(parsed(file).not_converted, Names{"gate"});
  file.erase("bits");
  file.erase("group_size");
  file["w_bit"] = 4;
  file["q_group_size"] = 64;
  file["version"] = "GEMM";
  EXPECT_EQ(parsed(file).group_size, 64);
}

TEST(HfQuantization, CompressedTensors) {
  json file = json::parse(kCompressed);
  EXPECT_EQ(parsed(file).method, QuantizationMethod::kCompressedTensors);
  EXPECT_EQ(parsed(file).group_size, 32);
  EXPECT_TRUE(parsed(file).symmetric);
  EXPECT_EQ(parsed(file).not_converted, (Names{"lm_head", "re:.*mlp.gate$"}));
  json& weights = file["config_groups"]["group_0"]["weights"];
  weights["symmetric"] = false;
  weights["actorder"] = "weight";
  EXPECT_FALSE(parsed(file).symmetric);
}

TEST(HfQuantization, WhatIsNotUnderstoodIsRefusedByName) {
  struct Row {
    const char* base;
    const char* pointer;  // what is replaced
    const char* value;    // null: taken out
    const char* message;
  };
  const Row table[] = {
      {kFp8, "/quant_method", nullptr,
       "field quantization_config.quant_method: missing, expected \"fp8\", \"gptq\", \"awq\" or "
       "\"compressed-tensors\""},
      {kFp8, "/quant_method", "\"bitsandbytes\"",
       "field quantization_config.quant_method: found \"bitsandbytes\", expected \"fp8\", "
       "\"gptq\", "
       "\"awq\" or \"compressed-tensors\""},
      {kFp8, "/weight_block_size", nullptr,
       "field quantization_config.weight_block_size: missing, expected [128, 128]"},
      {kFp8, "/weight_block_size", "[64, 64]",
       "field quantization_config.weight_block_size: found an array of 2, expected [128, 128]"},
      {kFp8, "/fmt", "\"e5m2\"",
       "field quantization_config.fmt: found \"e5m2\", expected \"e4m3\""},
      {kFp8, "/modules_to_not_convert", "[1]",
       "field quantization_config.modules_to_not_convert: found 1, expected a string in each "
       "place"},
      {kFp8, "/rotation", "\"hadamard\"",
       "field quantization_config.rotation: found \"hadamard\"; this field is not understood and "
       "may change what the model computes; remove it if it does not"},
      {kGptq, "/desc_act", "true",
       "field quantization_config.desc_act: found true, expected false: act-order (groups of "
       "scattered inputs) is not supported"},
      {kGptq, "/desc_act", nullptr,
       "field quantization_config.desc_act: missing, expected true or false"},
      {kGptq, "/bits", "8",
       "field quantization_config.bits: found 8, expected 4: other widths are not supported"},
      {kGptq, "/group_size", "-1",
       "field quantization_config.group_size: found -1, expected a multiple of 32"},
      {kGptq, "/group_size", nullptr,
       "field quantization_config.group_size: missing, expected an integer from -65536 to 65536"},
      {kGptq, "/checkpoint_format", "\"marlin\"",
       "field quantization_config.checkpoint_format: found \"marlin\", expected \"gptq\" or "
       "\"gptq_v2\""},
      {kGptq, "/dynamic", R"({"+:.*down_proj": {"bits": 8}})",
       "field quantization_config.dynamic: found \"+:.*down_proj\", expected only rules that begin "
       "with -: (a module's own width is not supported)"},
      {kGptq, "/is_marlin_format", "true",
       "field quantization_config.is_marlin_format: found true; this field is not understood and "
       "may change what the model computes; remove it if it does not"},
      {kAwq, "/version", "\"gemv\"",
       "field quantization_config.version: found \"gemv\", expected \"gemm\""},
      {kAwq, "/bits", nullptr, "field quantization_config.bits: missing, expected an integer"},
      {kAwq, "/group_size", "100",
       "field quantization_config.group_size: found 100, expected a multiple of 32"},
      {kAwq, "/zero_point", nullptr,
       "field quantization_config.zero_point: missing, expected true or false"},
      {kCompressed, "/format", "\"float-quantized\"",
       "field quantization_config.format: found \"float-quantized\", expected \"pack-quantized\""},
      {kCompressed, "/config_groups", R"({"group_0": {}, "group_1": {}})",
       "field quantization_config.config_groups: found an object of 2, expected an object of one "
       "group"},
      {kCompressed, "/config_groups/group_0/input_activations", R"({"num_bits": 8})",
       "field quantization_config.config_groups.input_activations: found an object of 1, expected "
       "null: quantised inputs are not supported"},
      {kCompressed, "/config_groups/group_0/weights/num_bits", "8",
       "field quantization_config.config_groups.weights.num_bits: found 8, expected 4: other "
       "widths are not supported"},
      {kCompressed, "/config_groups/group_0/weights/type", "\"float\"",
       "field quantization_config.config_groups.weights.type: found \"float\", expected \"int\""},
      {kCompressed, "/config_groups/group_0/weights/strategy", "\"channel\"",
       "field quantization_config.config_groups.weights.strategy: found \"channel\", expected "
       "\"group\""},
      {kCompressed, "/config_groups/group_0/weights/actorder", "\"group\"",
       "field quantization_config.config_groups.weights.actorder: found \"group\", expected null "
       "or \"weight\": groups of scattered inputs are not supported"},
      {kCompressed, "/config_groups/group_0/weights/symmetric", nullptr,
       "field quantization_config.config_groups.weights.symmetric: missing, expected true or "
       "false"},
      {kCompressed, "/kv_cache_scheme", R"({"num_bits": 8})",
       "field quantization_config.kv_cache_scheme: found an object of 1; this field is not "
       "understood and may change what the model computes; remove it if it does not"},
      {kCompressed, "/quantization_status", "\"frozen\"",
       "field quantization_config.quantization_status: found \"frozen\", expected \"compressed\""},
  };
  for (const Row& row : table) {
    const json::json_pointer place(row.pointer);
    json file = json::parse(row.base);
    if (row.value != nullptr) {
      file[place] = json::parse(row.value);
    } else {
      file[place.parent_pointer()].erase(place.back());
    }
    const auto result = parse_hf_quantization(file);
    EXPECT_EQ(result ? "no error" : result.error().message, row.message) << row.pointer;
  }
  EXPECT_EQ(parse_hf_quantization(json(1)).error().message,
            "field quantization_config: found 1, expected an object");
}

}  // namespace
}  // namespace millrace
