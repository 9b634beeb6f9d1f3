// Models whose matrices are quantised compute the same bytes as with their weights written out.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/batch_forward.h"
#include "runtime/load_model.h"
#include "weights/test_quantized.h"

namespace millrace {
namespace {

using testing::ChangedModel;
using testing::TestQuantization;

struct Case {
  const char* name;
  TestQuantization quantization;
};

class QuantizedModel : public ::testing::TestWithParam<Case> {
 protected:
  // Matrices whose shapes every one of the formats takes.
  static bool is_quantised(const std::string& name, const ChangedModel::Tensor& tensor) {
    return name.ends_with("_proj.weight") && tensor.shape.size() == 2 && tensor.shape[0] % 8 == 0 &&
           tensor.shape[1] % 32 == 0 && name.find("weights_proj") == std::string::npos;
  }

  static std::vector<float> logits(const ChangedModel& model, ActivationQuantization activations) {
    EXPECT_TRUE(model.open());
    EngineConfig engine;
    engine.purpose = Purpose::kForward;
    engine.activation_quantization = activations;
    engine.threads = 2;
    engine.max_model_len = 64;
    engine.num_blocks = 8;
    NoProgress progress;
    auto loaded = load_model(model.path(), engine, progress);
    EXPECT_TRUE(loaded) << loaded.error().message;
    if (!loaded) return {};
    std::vector<int32_t> prompt(40);
    for (int32_t i = 0; i < 40; ++i) prompt[static_cast<size_t>(i)] = 2 + i * 7 % 300;
    auto results = run_batch_forward(*loaded->runner, {prompt}, {}, progress);
    EXPECT_TRUE(results) << results.error().message;
    return results ? results->front().logits : std::vector<float>{};
  }
};

TEST_P(QuantizedModel, ComputesTheBytesOfItsWeightsWrittenOut) {
  std::mt19937 random(1);
  ChangedModel quantised("glm_moe_dsa_full");
  ChangedModel written_out("glm_moe_dsa_full");
  const auto tensors = quantised.tensors;
  int count = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!is_quantised(name, tensor)) continue;
    const std::string module = name.substr(0, name.size() - std::string(".weight").size());
    written_out.set(name, DType::kF32, tensor.shape,
                    put_quantised(quantised, module, tensor.shape[0], tensor.shape[1],
                                  GetParam().quantization, random));
    ++count;
  }
  EXPECT_GT(count, 100) << "experts, attention, dense layers";
  quantised.config["quantization_config"] = quantization_json(GetParam().quantization);
  const std::vector<float> got = logits(quantised, ActivationQuantization::kNone);
  const std::vector<float> expected = logits(written_out, ActivationQuantization::kNone);
  ASSERT_EQ(got.size(), expected.size());
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
  for (const float value : logits(quantised, ActivationQuantization::kInt8)) {
    ASSERT_TRUE(std::isfinite(value));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, QuantizedModel,
    ::testing::Values(Case{"fp8", {QuantizationMethod::kBlockFp8, true}},
                      Case{"gptq", {QuantizationMethod::kGptq, false}},
                      Case{"gptq_symmetric", {QuantizationMethod::kGptq, true}},
                      Case{"awq", {QuantizationMethod::kAwq, false}},
                      Case{"compressed", {QuantizationMethod::kCompressedTensors, false}},
                      Case{"compressed_symmetric", {QuantizationMethod::kCompressedTensors, true}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace millrace
