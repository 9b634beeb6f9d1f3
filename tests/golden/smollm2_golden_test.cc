// SmolLM2-135M-Instruct (Q4_1) against transformers on the dequantised weights, in exact mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "golden_case.h"
#include "io/model_path.h"

namespace millrace {
namespace {

// The model is fetched by ./dev; without it there is nothing to test here.
class Smollm2Golden : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = resolve_model_path("smollm2", model_search_dirs());
    if (!path) GTEST_SKIP() << path.error().message;
    path_ = *path;
    std::ifstream file(std::string(MILLRACE_TEST_DATA) + "/golden/smollm2.json");
    golden_ = nlohmann::json::parse(file);
    for (const auto& prompt : golden_["prompts"]) {
      prompts_.push_back(prompt["ids"].get<std::vector<int32_t>>());
    }
  }

  std::string path_;
  nlohmann::json golden_;
  std::vector<std::vector<int32_t>> prompts_;
};

TEST_F(Smollm2Golden, GreedyAndTopLogitsInExactMode) {
  constexpr int64_t kNumGreedy = 32;
  const auto results = run_prompts(path_, forward_config(prompts_, kNumGreedy), prompts_,
                                   {.num_greedy = kNumGreedy});
  ASSERT_TRUE(results) << results.error().message;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const auto& expected = golden_["prompts"][i];
    const PromptResult& result = (*results)[i];
    EXPECT_EQ(result.greedy, expected["greedy"].get<std::vector<int32_t>>()) << expected["name"];
    const size_t vocab = result.logits.size() / prompts_[i].size();
    const float* last = result.logits.data() + (prompts_[i].size() - 1) * vocab;
    for (const auto& pair : expected["top20"]) {
      EXPECT_NEAR(last[pair[0].get<size_t>()], pair[1].get<float>(), 1e-3) << expected["name"];
    }
  }
}

}  // namespace
}  // namespace millrace
