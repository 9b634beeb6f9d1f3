// Configurations of sparse models from config.json: the goldens' files, published models, and what
// is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "config/model_config.h"

namespace millrace {
namespace {

using nlohmann::json;

json golden(const std::string& name) {
  std::ifstream file(std::string(MILLRACE_TEST_DATA) + "/golden/" + name + "/config.json");
  return json::parse(file);
}

ModelConfig parsed(const json& file) {
  auto config = parse_hf_config(file);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : ModelConfig{};
}

using Flags = std::vector<uint8_t>;

TEST(SparseHfConfig, Goldens) {
  for (const char* name :
       {"qwen3_moe", "glm4_moe", "deepseek_v3", "deepseek_v3_no_q_lora", "deepseek_v32",
        "glm_moe_dsa_full", "glm_moe_dsa_shared", "glm_moe_dsa_fp16", "glm_moe_dsa_sharded_mtp"}) {
    SCOPED_TRACE(name);
    const ModelConfig config = parsed(golden(name));
    ASSERT_TRUE(config.moe);
    EXPECT_EQ(config.moe->num_experts, 8);
  }
}

}  // namespace
}  // namespace millrace
