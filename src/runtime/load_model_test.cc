#include "runtime/load_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/test_files.h"
#include "weights/dummy_weights.h"

namespace millrace {
namespace {

std::filesystem::path config_file() {
  return std::filesystem::path(MILLRACE_TEST_DATA) / "golden" / "glm_moe_dsa_shared" /
         "config.json";
}

TEST(LoadModel, DummyWeightsNeedAConfigurationOnly) {
  const testing::TempFolder folder;
  std::filesystem::copy_file(config_file(), folder.file("config.json"));
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

TEST(LoadModel, SelectsNoMoreKeysThanTheContextHolds) {
  const testing::TempFolder folder;
  auto config = nlohmann::json::parse(std::ifstream(config_file()));
  config["index_topk"] = 1 << 20;
  std::ofstream(folder.file("config.json")) << config;
  EngineConfig engine;
  engine.threads = 1;
  engine.load_format = LoadFormat::kDummy;
  engine.max_model_len = 64;
  engine.num_blocks = 4;
  NoProgress progress;
  const auto model = load_model(folder.path(), engine, progress);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->config.indexer->topk, 64);
}

// The system would give the memory, and end the process when it is written.
TEST(LoadModel, RefusesWhatTheMachineCannotHold) {
  const testing::TempFolder folder;
  auto config = nlohmann::json::parse(std::ifstream(config_file()));
  const auto error_of = [&](const EngineConfig& engine) {
    std::ofstream(folder.file("config.json")) << config;
    NoProgress progress;
    const auto model = load_model(folder.path(), engine, progress);
    return model ? "none" : model.error().message;
  };
  EngineConfig engine;
  engine.threads = 1;
  engine.load_format = LoadFormat::kDummy;
  engine.max_model_len = 64;
  engine.num_blocks = int64_t{1} << 30;
  EXPECT_NE(error_of(engine).find("the KV cache of 1073741824 blocks"), std::string::npos);
  engine.num_blocks = 4;
  EXPECT_EQ(error_of(engine), "none");
  config["hidden_size"] = 1 << 20;
  config["vocab_size"] = 1 << 24;
  EXPECT_NE(error_of(engine).find("the weights take"), std::string::npos);
}

}  // namespace
}  // namespace millrace
