// Checkpoints with quantised matrices as they are published: block-FP8, GPTQ, AWQ and
// compressed-tensors.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "weights/checkpoint_sizes.h"
#include "weights/model_weights.h"
#include "weights/test_models.h"
#include "weights/test_quantized.h"
#include "weights/weights_plan.h"

namespace millrace {
namespace {

using testing::ChangedModel;
using testing::Codes;
using testing::load_weights;
using testing::put_awq;
using testing::put_compressed;
using testing::put_fp8;
using testing::put_gptq;
using testing::put_quantised;
using testing::quantization_of;
using testing::values_of;

// The modules of deepseek_v3 that the tests below quantise: an expert of layer 1, a matrix of
// attention, and kv_b.
constexpr const char* kExpert = "model.layers.1.mlp.experts.3.gate_proj";  // [32, 64]
constexpr const char* kQA = "model.layers.2.self_attn.q_a_proj";           // [48, 64]
constexpr const char* kKvB = "model.layers.0.self_attn.kv_b_proj";         // [4 * (24 + 24), 32]

struct Case {
  const char* name;
  QuantizationMethod method;
  bool symmetric;
};

class QuantizedWeights : public ::testing::TestWithParam<Case> {
 protected:
  // Replaces a matrix by random codes; gives what they are worth.
  std::vector<float> put(const std::string& module, int64_t n, int64_t k) {
    return put_quantised(model_, module, n, k, {GetParam().method, GetParam().symmetric}, random_);
  }

  std::string error() {
    return model_.error([](ModelConfig& config) {
      config.quantization = quantization_of(GetParam().method, GetParam().symmetric);
    });
  }

  std::mt19937 random_{1};
  ChangedModel model_{"deepseek_v3"};
};

TEST_P(QuantizedWeights, AreWorthWhatTheFormatSays) {
  const bool fp8 = GetParam().method == QuantizationMethod::kBlockFp8;
  const std::vector<float> expert = put(kExpert, 32, 64);
  const std::vector<float> q_a = put(kQA, 48, 64);
  const std::vector<float> kv_b = put(kKvB, 192, 32);
  const auto checkpoint = model_.open();
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ModelConfig config = *read_model_config(*checkpoint);
  config.quantization = quantization_of(GetParam().method, GetParam().symmetric);
  const auto weights = load_weights(*checkpoint, config);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(packed_bytes(*checkpoint, config), weights->total_bytes());
  EXPECT_EQ(num_parameters(*checkpoint), num_parameters(config));
  const PackedMatrix& packed = weights->layers[1].moe.gate[3];
  EXPECT_EQ(packed.kind, fp8 ? PackedKind::kFp8 : PackedKind::kQuantised);
  if (!fp8) {
    EXPECT_EQ(packed.quant.bits, 4);
  }
  EXPECT_EQ(values_of(packed), expert);
  EXPECT_EQ(values_of(weights->layers[2].mla.q_a.matrix), q_a);
  // Heads of 24 rows are no whole blocks, so the transposed half is expanded.
  const MlaWeights& mla = weights->layers[0].mla;
  for (size_t head = 0; head < 4; ++head) {
    EXPECT_EQ(mla.k_up[head].kind, PackedKind::kF32);
    const std::vector<float> keys = values_of(mla.k_up[head]);
    const float* rows = kv_b.data() + head * 48 * 32;
    for (size_t c = 0; c < 32; ++c) {
      for (size_t d = 0; d < 24; ++d) ASSERT_EQ(keys[c * 24 + d], rows[d * 32 + c]);
    }
    EXPECT_EQ(values_of(mla.v_up[head]), std::vector<float>(rows + 24 * 32, rows + 48 * 32));
  }
}

TEST_P(QuantizedWeights, WhatIsMissingOrMisshapenIsNamed) {
  put(kExpert, 32, 64);
  ASSERT_EQ(error(), "");
  const std::map<std::string, ChangedModel::Tensor> whole = model_.tensors;
  for (const auto& [name, tensor] : whole) {
    const bool codes =
        name.ends_with(".weight") || name.ends_with(".qweight") || name.ends_with(".weight_packed");
    if (!name.starts_with(kExpert)) continue;
    const bool optional = name.ends_with("g_idx");
    if (!codes && !optional) {
      model_.tensors.erase(name);
      EXPECT_TRUE(error().starts_with(fmt::format("tensor {} is missing; quantised matrix ", name)))
          << error();
    }
    model_.tensors = whole;
    model_.zeros(name, tensor.dtype, {7});
    EXPECT_TRUE(error().starts_with(fmt::format("tensor {} has shape [7]; ", name))) << error();
    model_.tensors = whole;
    model_.zeros(name, DType::kBool, tensor.shape);
    EXPECT_TRUE(error().starts_with(fmt::format("tensor {} is of type bool; ", name))) << error();
    model_.tensors = whole;
  }
  EXPECT_NE(model_.error(), "") << "without a quantization_config";
}

INSTANTIATE_TEST_SUITE_P(
    All, QuantizedWeights,
    ::testing::Values(Case{"fp8", QuantizationMethod::kBlockFp8, true},
                      Case{"gptq", QuantizationMethod::kGptq, false},
                      Case{"gptq_symmetric", QuantizationMethod::kGptq, true},
                      Case{"awq", QuantizationMethod::kAwq, false},
                      Case{"compressed", QuantizationMethod::kCompressedTensors, false},
                      Case{"compressed_symmetric", QuantizationMethod::kCompressedTensors, true}),
    [](const auto& info) { return std::string(info.param.name); });

std::string error_of(const ChangedModel& model, QuantizationMethod method, bool symmetric) {
  return model.error(
      [&](ModelConfig& config) { config.quantization = quantization_of(method, symmetric); });
}

TEST(QuantizedContents, ActOrderAndZerosOfSymmetricCodesAreRefused) {
  std::mt19937 random(2);
  ChangedModel model("deepseek_v3");
  put_gptq(model, kExpert, Codes(32, 64, false, random));
  EXPECT_TRUE(error_of(model, QuantizationMethod::kGptq, true)
                  .starts_with(fmt::format("tensor {}.qzeros: found 0x", kExpert)));
  std::vector<int32_t> groups(64);
  groups[5] = 1;
  model.set(std::string(kExpert) + ".g_idx", DType::kI32, {64}, groups);
  EXPECT_TRUE(error_of(model, QuantizationMethod::kGptq, false)
                  .starts_with(fmt::format("tensor {}.g_idx: input 5 is in group 1, expected 0: "
                                           "act-order",
                                           kExpert)));
  ChangedModel compressed("deepseek_v3");
  put_compressed(compressed, kExpert, Codes(32, 64, true, random), true);
  compressed.set(std::string(kExpert) + ".weight_shape", DType::kI64, {2},
                 std::vector<int64_t>{32, 63});
  EXPECT_TRUE(error_of(compressed, QuantizationMethod::kCompressedTensors, true)
                  .starts_with(fmt::format("tensor {}.weight_shape holds [32, 63]; ", kExpert)));
}

TEST(QuantizedContents, BlockFp8KeepsItsBytesWhenItIsTransposed) {
  // A head of 32 + 64 rows, so every 32 inputs of the transposed half share a scale.
  std::mt19937 random(3);
  ChangedModel model("deepseek_v3");
  for (int i = 0; i < 4; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.self_attn.", i);
    model.zeros(prefix + "q_b_proj.weight", DType::kBF16, {4 * 48, 48});
    model.zeros(prefix + "o_proj.weight", DType::kBF16, {64, 4 * 64});
  }
  std::vector<float> kv_b;
  for (int i = 0; i < 4; ++i) {
    kv_b =
        put_fp8(model, fmt::format("model.layers.{}.self_attn.kv_b_proj", i), 4 * 96, 32, random);
  }
  const auto checkpoint = model.open();
  ModelConfig config = *read_model_config(*checkpoint);
  config.quantization = quantization_of(QuantizationMethod::kBlockFp8, true);
  config.mla->qk_nope_head_dim = 32;
  config.mla->v_head_dim = 64;
  const auto weights = load_weights(*checkpoint, config);
  ASSERT_TRUE(weights) << weights.error().message;
  const MlaWeights& mla = weights->layers[3].mla;
  for (size_t head = 0; head < 4; ++head) {
    EXPECT_EQ(mla.k_up[head].kind, PackedKind::kFp8);
    EXPECT_EQ(mla.v_up[head].kind, PackedKind::kFp8);
    const std::vector<float> keys = values_of(mla.k_up[head]);
    const float* rows = kv_b.data() + head * 96 * 32;
    for (size_t c = 0; c < 32; ++c) {
      for (size_t d = 0; d < 32; ++d) ASSERT_EQ(keys[c * 32 + d], rows[d * 32 + c]);
    }
    EXPECT_EQ(values_of(mla.v_up[head]), std::vector<float>(rows + 32 * 32, rows + 96 * 32));
  }
}

TEST(QuantizedContents, ZeroBiasesOfGptqAreLeftOut) {
  std::mt19937 random(4);
  ChangedModel model("deepseek_v3");
  put_gptq(model, kExpert, Codes(32, 64, false, random));
  model.zeros(std::string(kExpert) + ".bias", DType::kF16, {32});
  EXPECT_EQ(error_of(model, QuantizationMethod::kGptq, false), "");
  model.set(std::string(kExpert) + ".bias", DType::kF16, {32}, std::vector<uint16_t>(32, 1));
  EXPECT_TRUE(error_of(model, QuantizationMethod::kGptq, false)
                  .starts_with(fmt::format("tensor {}.bias is there, ", kExpert)));
}

}  // namespace
}  // namespace millrace
