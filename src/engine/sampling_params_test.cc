#include "engine/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace millrace {
namespace {

std::string message(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  const Result<> result = validate(params, 100);
  return result ? "" : result.error().message;
}

TEST(SamplingParams, DefaultsAndLimitsAreValid) {
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_EQ(message([](auto& p) { p.temperature = 0; }), "");
  EXPECT_EQ(message([](auto& p) { p.top_k = -1; }), "");
  EXPECT_EQ(message([](auto& p) { p.top_k = INT64_MAX; }), "");
  EXPECT_EQ(message([](auto& p) { p.min_p = 1; }), "");
  EXPECT_EQ(message([](auto& p) { p.logit_bias = {{0, -100}, {99, 100}}; }), "");
  EXPECT_EQ(message([](auto& p) { p.logprobs = 20; }), "");
  EXPECT_EQ(message([](auto& p) { p.min_tokens = *(p.max_tokens = 4); }), "");
}

TEST(SamplingParams, ErrorsNameFieldValueAndRange) {
  const struct {
    std::function<void(SamplingParams&)> change;
    const char* message;
  } cases[] = {
      {[](auto& p) { p.temperature = -0.5; },
       "temperature is -0.5, expected a finite number of at least 0"},
      {[](auto& p) { p.temperature = NAN; },
       "temperature is nan, expected a finite number of at least 0"},
      {[](auto& p) { p.top_k = -2; }, "top_k is -2, expected at least -1"},
      {[](auto& p) { p.top_p = 0; }, "top_p is 0, expected a number above 0 and at most 1"},
      {[](auto& p) { p.min_p = 1.1; },
       "min_p is 1.1, expected a number of at least 0 and at most 1"},
      {[](auto& p) { p.repetition_penalty = 0; },
       "repetition_penalty is 0, expected a finite number above 0"},
      {[](auto& p) { p.presence_penalty = 3; },
       "presence_penalty is 3, expected a number of at least -2 and at most 2"},
      {[](auto& p) { p.frequency_penalty = -2.5; },
       "frequency_penalty is -2.5, expected a number of at least -2 and at most 2"},
      {[](auto& p) {
         p.logit_bias = {{100, 1}};
       },
       "logit_bias names token 100, the vocabulary has 0 to 99"},
      {[](auto& p) {
         p.logit_bias = {{7, 101}};
       },
       "logit_bias of token 7 is 101, expected a number of at least -100 and at most 100"},
      {[](auto& p) { p.n = 0; }, "n is 0, expected 1 to 128"},
      {[](auto& p) { p.logprobs = 21; }, "logprobs is 21, expected 0 to 20"},
      {[](auto& p) { p.stop = {""}; }, "stop has an empty string, expected at least one character"},
      {[](auto& p) { p.stop.assign(65, "x"); }, "stop has 65 strings, expected at most 64"},
      {[](auto& p) { p.stop_token_ids = {-1}; },
       "stop_token_ids names token -1, the vocabulary has 0 to 99"},
      {[](auto& p) { p.max_tokens = 0; }, "max_tokens is 0, expected at least 1"},
      {[](auto& p) { p.min_tokens = -1; }, "min_tokens is -1, expected at least 0"},
      {[](auto& p) {
         p.max_tokens = 3;
         p.min_tokens = 4;
       },
       "min_tokens is 4, expected at most max_tokens, which is 3"},
  };
  for (const auto& each : cases) EXPECT_EQ(message(each.change), each.message);
}

}  // namespace
}  // namespace millrace
