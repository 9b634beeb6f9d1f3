#include "cli/sampling_flags.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

Result<SamplingParams> parse(const std::string& line, SamplingParams defaults = {}) {
  CLI::App app;
  SamplingFlags flags;
  add_sampling_flags(app, flags);
  app.parse(line);
  return flags.apply_to(std::move(defaults));
}

TEST(SamplingFlags, WhatIsNotTypedKeepsTheModelsDefault) {
  SamplingParams defaults;
  defaults.temperature = 0.6;
  defaults.top_k = 20;
  defaults.repetition_penalty = 1.05;
  const auto params = parse("--top-k 5", defaults);
  EXPECT_EQ(params->temperature, 0.6);
  EXPECT_EQ(params->top_k, 5);
  EXPECT_EQ(params->repetition_penalty, 1.05);
  EXPECT_FALSE(params->seed.has_value());
}

TEST(SamplingFlags, EveryFlagArrives) {
  const auto params = parse(
      "--temperature 0.5 --top-k 4 --top-p 0.9 --min-p 0.1 --repetition-penalty 1.2 "
      "--presence-penalty -0.5 --frequency-penalty 0.25 --logit-bias 42=-100 --logit-bias 7=1.5 "
      "--seed 9 --n 2 --stop END --stop \"a b\" --stop-token-ids 1,2 --ignore-eos --max-tokens 10 "
      "--min-tokens 3 --logprobs 5");
  ASSERT_TRUE(params.has_value());
  EXPECT_EQ(params->temperature, 0.5);
  EXPECT_EQ(params->top_k, 4);
  EXPECT_EQ(params->top_p, 0.9);
  EXPECT_EQ(params->min_p, 0.1);
  EXPECT_EQ(params->repetition_penalty, 1.2);
  EXPECT_EQ(params->presence_penalty, -0.5);
  EXPECT_EQ(params->frequency_penalty, 0.25);
  EXPECT_EQ(params->logit_bias, (std::vector<std::pair<int64_t, double>>{{42, -100.0}, {7, 1.5}}));
  EXPECT_EQ(params->seed, 9u);
  EXPECT_EQ(params->n, 2);
  EXPECT_EQ(params->stop, (std::vector<std::string>{"END", "a b"}));
  EXPECT_EQ(params->stop_token_ids, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(params->ignore_eos);
  EXPECT_EQ(params->max_tokens, 10);
  EXPECT_EQ(params->min_tokens, 3);
  EXPECT_EQ(params->logprobs, 5);
}

TEST(SamplingFlags, AWrongBiasIsAnErrorThatShowsTheForm) {
  for (const char* value : {"42", "42=", "=1", "a=1", "1=2x"}) {
    const auto params = parse(std::string("--logit-bias ") + value);
    ASSERT_FALSE(params.has_value()) << value;
    EXPECT_NE(params.error().message.find("expected TOKEN_ID=BIAS"), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace
