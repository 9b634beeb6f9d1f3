// Checkpoints with quantised matrices as they are published: block-FP8, GPTQ, AWQ and
// compressed-tensors.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "weights/checkpoint_sizes.h"
#include "weights/model_weights.h"
#include "weights/test_models.h"
#include "weights/weights_plan.h"

namespace millrace {
namespace {

using testing::ChangedModel;
using testing::load_weights;
using testing::values_of;

constexpr int kGroup = 32;

// A matrix of 4-bit codes with what they are worth, in the words of each packing.
struct Codes {
  int64_t n;
  int64_t k;
  std::vector<int> codes;     // [n][k]
  std::vector<int> zeros;     // [n][groups]
  std::vector<float> scales;  // [n][groups]; halves and bf16 at once

  Codes(int64_t n_, int64_t k_, bool symmetric, std::mt19937& random) : n(n_), k(k_) {
    for (int64_t i = 0; i < n * k; ++i) codes.push_back(static_cast<int>(random() % 16));
    for (int64_t i = 0; i < n * groups(); ++i) {
      zeros.push_back(symmetric ? 8 : static_cast<int>(1 + random() % 15));
      scales.push_back(static_cast<float>(1 + random() % 127) / 1024);
    }
  }

  int64_t groups() const { return k / kGroup; }
  std::vector<float> values() const {
    std::vector<float> all;
    for (int64_t i = 0; i < n * k; ++i) {
      const auto at = static_cast<size_t>(i / k * groups() + i % k / kGroup);
      all.push_back(scales[at] * static_cast<float>(codes[static_cast<size_t>(i)] - zeros[at]));
    }
    return all;
  }
};

uint32_t& word(std::vector<uint32_t>& words, int64_t index) {
  return words[static_cast<size_t>(index)];
}

// Puts codes in place of <module>.weight.
void put_gptq(ChangedModel& model, const std::string& module, const Codes& m) {
  std::vector<uint32_t> qweight(static_cast<size_t>(m.n * m.k / 8));
  std::vector<uint32_t> qzeros(static_cast<size_t>(m.groups() * m.n / 8));
  std::vector<uint16_t> scales(static_cast<size_t>(m.groups() * m.n));
  std::vector<int32_t> g_idx;
  for (int64_t o = 0; o < m.n; ++o) {
    for (int64_t i = 0; i < m.k; ++i) {
      const auto code = static_cast<uint32_t>(m.codes[static_cast<size_t>(o * m.k + i)]);
      word(qweight, i / 8 * m.n + o) |= code << (i % 8 * 4);
    }
    for (int64_t g = 0; g < m.groups(); ++g) {
      const auto at = static_cast<size_t>(o * m.groups() + g);
      word(qzeros, g * m.n / 8 + o / 8) |= static_cast<uint32_t>(m.zeros[at] - 1) << (o % 8 * 4);
      scales[static_cast<size_t>(g * m.n + o)] = f32_to_f16(m.scales[at]);
    }
  }
  for (int64_t i = 0; i < m.k; ++i) g_idx.push_back(static_cast<int32_t>(i / kGroup));
  model.tensors.erase(module + ".weight");
  model.set(module + ".qweight", DType::kI32, {m.k / 8, m.n}, qweight);
  model.set(module + ".qzeros", DType::kI32, {m.groups(), m.n / 8}, qzeros);
  model.set(module + ".scales", DType::kF16, {m.groups(), m.n}, scales);
  model.set(module + ".g_idx", DType::kI32, {m.k}, g_idx);
}

void put_awq(ChangedModel& model, const std::string& module, const Codes& m) {
  constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<uint32_t> qweight(static_cast<size_t>(m.n * m.k / 8));
  std::vector<uint32_t> qzeros(static_cast<size_t>(m.groups() * m.n / 8));
  std::vector<uint16_t> scales(static_cast<size_t>(m.groups() * m.n));
  for (int64_t c = 0; c < m.n / 8; ++c) {
    for (int j = 0; j < 8; ++j) {
      const int64_t o = c * 8 + kOrder[j];
      for (int64_t i = 0; i < m.k; ++i) {
        const auto code = static_cast<uint32_t>(m.codes[static_cast<size_t>(o * m.k + i)]);
        word(qweight, i * m.n / 8 + c) |= code << (4 * j);
      }
      for (int64_t g = 0; g < m.groups(); ++g) {
        const auto at = static_cast<size_t>(o * m.groups() + g);
        word(qzeros, g * m.n / 8 + c) |= static_cast<uint32_t>(m.zeros[at]) << (4 * j);
        scales[static_cast<size_t>(g * m.n + o)] = f32_to_f16(m.scales[at]);
      }
    }
  }
  model.tensors.erase(module + ".weight");
  model.set(module + ".qweight", DType::kI32, {m.k, m.n / 8}, qweight);
  model.set(module + ".qzeros", DType::kI32, {m.groups(), m.n / 8}, qzeros);
  model.set(module + ".scales", DType::kF16, {m.groups(), m.n}, scales);
}

void put_compressed(ChangedModel& model, const std::string& module, const Codes& m,
                    bool symmetric) {
  std::vector<uint32_t> packed(static_cast<size_t>(m.n * m.k / 8));
  std::vector<uint32_t> zeros(static_cast<size_t>(m.groups() * m.n / 8));
  std::vector<uint16_t> scales;
  for (int64_t o = 0; o < m.n; ++o) {
    for (int64_t i = 0; i < m.k; ++i) {
      const auto code = static_cast<uint32_t>(m.codes[static_cast<size_t>(o * m.k + i)]);
      word(packed, o * m.k / 8 + i / 8) |= code << (i % 8 * 4);
    }
    for (int64_t g = 0; g < m.groups(); ++g) {
      const auto at = static_cast<size_t>(o * m.groups() + g);
      word(zeros, o / 8 * m.groups() + g) |= static_cast<uint32_t>(m.zeros[at]) << (o % 8 * 4);
      scales.push_back(f32_to_bf16(m.scales[at]));
    }
  }
  model.tensors.erase(module + ".weight");
  model.set(module + ".weight_packed", DType::kI32, {m.n, m.k / 8}, packed);
  model.set(module + ".weight_scale", DType::kBF16, {m.n, m.groups()}, scales);
  model.set(module + ".weight_shape", DType::kI64, {2}, std::vector<int64_t>{m.n, m.k});
  if (!symmetric) {
    model.set(module + ".weight_zero_point", DType::kI32, {m.n / 8, m.groups()}, zeros);
  }
}

// Codes [n][k] and scales of blocks of 128; gives the values.
std::vector<float> put_fp8(ChangedModel& model, const std::string& module, int64_t n, int64_t k,
                           std::mt19937& random) {
  std::vector<uint8_t> codes(static_cast<size_t>(n * k));
  for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % 0x7f | (random() % 2) << 7);
  const int64_t across = (k + 127) / 128;
  std::vector<float> scales(static_cast<size_t>((n + 127) / 128 * across));
  for (float& scale : scales) scale = static_cast<float>(1 + random() % 1000) / 77777;
  std::vector<float> values;
  for (int64_t i = 0; i < n * k; ++i) {
    const float scale = scales[static_cast<size_t>(i / k / 128 * across + i % k / 128)];
    values.push_back(f8e4m3_to_f32(codes[static_cast<size_t>(i)]) * scale);
  }
  model.set(module + ".weight", DType::kF8E4M3, {n, k}, codes);
  model.set(module + ".weight_scale_inv", DType::kF32, {(n + 127) / 128, across}, scales);
  return values;
}

QuantizationConfig config_of(QuantizationMethod method, bool symmetric) {
  QuantizationConfig config{.method = method};
  config.block_rows = config.block_cols = method == QuantizationMethod::kBlockFp8 ? 128 : 0;
  config.group_size = kGroup;
  config.symmetric = symmetric;
  config.zeros_less_one = method == QuantizationMethod::kGptq;
  return config;
}

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
    const Case& format = GetParam();
    if (format.method == QuantizationMethod::kBlockFp8) {
      return put_fp8(model_, module, n, k, random_);
    }
    const Codes codes(n, k, format.symmetric, random_);
    if (format.method == QuantizationMethod::kGptq) put_gptq(model_, module, codes);
    if (format.method == QuantizationMethod::kAwq) put_awq(model_, module, codes);
    if (format.method == QuantizationMethod::kCompressedTensors) {
      put_compressed(model_, module, codes, format.symmetric);
    }
    return codes.values();
  }

  std::string error() {
    return model_.error([](ModelConfig& config) {
      config.quantization = config_of(GetParam().method, GetParam().symmetric);
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
  config.quantization = config_of(GetParam().method, GetParam().symmetric);
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
      [&](ModelConfig& config) { config.quantization = config_of(method, symmetric); });
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
  config.quantization = config_of(QuantizationMethod::kBlockFp8, true);
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
