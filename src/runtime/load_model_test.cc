#include "runtime/load_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/test_files.h"
#include "weights/dummy_weights.h"

namespace millrace {
namespace {

TEST(LoadModel, DummyWeightsNeedAConfigurationOnly) {
  const testing::TempFolder folder;
  std::filesystem::copy_file(
      std::filesystem::path(MILLRACE_TEST_DATA) / "golden" / "glm_moe_dsa_shared" / "config.json",
      folder.file("config.json"));
  EngineConfig engine;
  engine.threads = 2;
  engine.max_model_len = 64;
  engine.num_blocks = 8;
  NoProgress progress;
  EXPECT_FALSE(load_model(folder.path(), engine, progress));
  engine.load_format = LoadFormat::kDummy;
  engine.dummy_format = WeightFormat::kQ4_0;
  const auto model = load_model(folder.path(), engine, progress);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(dummy_weight_bytes(model->config, WeightFormat::kQ4_0), model->weight_bytes);
  EXPECT_GT(model->num_parameters, 0);
}

}  // namespace
}  // namespace millrace
