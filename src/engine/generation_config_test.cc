#include "engine/generation_config.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

Result<SamplingParams> defaults(const char* json) {
  return default_sampling_params(nlohmann::json::parse(json));
}

TEST(GenerationConfig, IsGreedyUnlessTheModelSamples) {
  EXPECT_EQ(default_sampling_params(nullptr)->temperature, 0);
  EXPECT_EQ(defaults(R"({"temperature": 0.6})")->temperature, 0);
  EXPECT_EQ(defaults(R"({"do_sample": false, "temperature": 0.6})")->temperature, 0);
  EXPECT_EQ(defaults(R"({"do_sample": true})")->temperature, 1);
  EXPECT_EQ(defaults(R"({"repetition_penalty": 1.1})")->repetition_penalty, 1.1);
}

TEST(GenerationConfig, ReadsWhatTheModelRecommends) {
  const auto params = defaults(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null})");
  ASSERT_TRUE(params.has_value());
  EXPECT_EQ(params->temperature, 0.6);
  EXPECT_EQ(params->top_k, 20);
  EXPECT_EQ(params->top_p, 0.95);
  EXPECT_EQ(params->min_p, 0);
}

TEST(GenerationConfig, ErrorsNameTheField) {
  EXPECT_EQ(defaults(R"({"do_sample": true, "top_k": 1.5})").error().message,
            "top_k is 1.5, expected a whole number");
  EXPECT_EQ(defaults(R"({"do_sample": true, "top_p": "x"})").error().message,
            "top_p is \"x\", expected a number");
  EXPECT_EQ(defaults("[1]").error().message, "not a JSON object");
  EXPECT_EQ(defaults(R"({"repetition_penalty": 0})").error().message,
            "repetition_penalty is 0, expected a finite number above 0");
  EXPECT_EQ(defaults(R"({"do_sample": true, "temperature": -5})").error().message,
            "temperature is -5, expected a finite number of at least 0");
  EXPECT_EQ(defaults(R"({"do_sample": true, "top_p": 7})").error().message,
            "top_p is 7, expected a number above 0 and at most 1");
  EXPECT_EQ(defaults(R"({"do_sample": true, "top_k": 18446744073709551615})").error().message,
            "top_k is 18446744073709551615, expected at most 9223372036854775807");
}

}  // namespace
}  // namespace millrace
