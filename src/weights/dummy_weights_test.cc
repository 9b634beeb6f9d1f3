#include "weights/dummy_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "weights/test_models.h"

namespace millrace {
namespace {

using testing::values_of;

ModelConfig config_of(const std::string& golden) {
  return *read_model_config(*Checkpoint::open(testing::golden_folder(golden)));
}

ModelWeights make(const ModelConfig& config, WeightFormat format, int threads = 2) {
  ThreadTeam team(threads, 2);
  NoProgress progress;
  return *make_dummy_weights(config, format, team, progress);
}

// Mean 0 and standard deviation k^-0.5, within what the few values of a small matrix allow and what
// floats are off (they keep to powers of two).
void expect_spread(const PackedMatrix& matrix) {
  double sum = 0;
  double squares = 0;
  const std::vector<float> values = values_of(matrix);
  for (const float value : values) {
    ASSERT_TRUE(std::isfinite(value));
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const auto count = static_cast<double>(values.size());
  const double expected = std::pow(static_cast<double>(matrix.k), -0.5);
  EXPECT_NEAR(sum / count, 0.0, 6 * expected / std::sqrt(count));
  const double deviation = std::sqrt(squares / count) / expected;
  EXPECT_GT(deviation, 0.65);
  EXPECT_LT(deviation, 1.5);
}

class DummyFormats : public ::testing::TestWithParam<int> {};

TEST_P(DummyFormats, HaveTheFormatTheSpreadAndTheSize) {
  const auto format = static_cast<WeightFormat>(GetParam());
  ModelConfig config = config_of("glm_moe_dsa_shared");
  config.hidden_size = 256;
  config.vocab_size = 100;
  const ModelWeights weights = make(config, format);
  const auto expected = packed_layout(format, 100, 256);
  EXPECT_EQ(weights.embedding.kind, expected->kind);
  EXPECT_EQ(weights.embedding.quant, expected->quant);
  expect_spread(weights.embedding);
  expect_spread(weights.head);
  expect_spread(weights.layers[3].moe.gate[5]);
  expect_spread(weights.layers[3].moe.down[5]);
  expect_spread(weights.layers[3].mla.v_up[1]);
  expect_spread(weights.layers[3].moe.router.matrix);
  EXPECT_EQ(weights.layers[3].moe.router.matrix.kind, PackedKind::kF32);
  // Heads of 24 elements are no blocks of any format.
  EXPECT_EQ(weights.layers[3].mla.k_up[0].kind,
            info(format).block > 1 ? PackedKind::kF16 : expected->kind);
  EXPECT_EQ(weights.layers[2].mla.indexer.q.matrix.n, 0) << "a shared layer";
  EXPECT_EQ(weights.layers[0].input_norm[7], 1.0f);
  EXPECT_EQ(weights.layers[0].mla.indexer.k_norm[3], 1.0f);
  EXPECT_EQ(weights.layers[0].mla.indexer.k_norm_bias[3], 0.0f);
  EXPECT_EQ(weights.layers[4].moe.correction_bias[3], 0.0f);
  EXPECT_EQ(dummy_weight_bytes(config, format), weights.total_bytes());
}

INSTANTIATE_TEST_SUITE_P(All, DummyFormats, ::testing::Range(0, kNumWeightFormats),
                         [](const auto& info) {
                           return std::string(name_of(static_cast<WeightFormat>(info.param)));
                         });

TEST(DummyWeights, AreTheSameForAnyNumberOfThreads) {
  const ModelConfig config = config_of("qwen3_moe");
  const ModelWeights one = make(config, WeightFormat::kQ8_0, 1);
  const ModelWeights three = make(config, WeightFormat::kQ8_0, 3);
  ASSERT_EQ(one.total_bytes(), three.total_bytes());
  EXPECT_EQ(std::memcmp(one.storage.data(), three.storage.data(), one.storage.size()), 0);
  // No two matrices are alike.
  EXPECT_NE(values_of(one.layers[0].moe.gate[0]), values_of(one.layers[0].moe.gate[1]));
}

TEST(DummyWeights, TiedHeadsAreTheEmbedding) {
  const ModelWeights weights = make(config_of("qwen3"), WeightFormat::kBF16);
  EXPECT_EQ(weights.head.panels, weights.embedding.panels);
}

}  // namespace
}  // namespace millrace
