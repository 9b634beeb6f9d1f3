#include "engine/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr int64_t kMaxSamples = 128;
constexpr int64_t kMaxLogprobs = 20;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxTokenList = 1024;

// A closed range of real numbers, or one that is open below.
Result<> check_real(std::string_view field, double value, double low, double high,
                    bool open_below = false) {
  const bool above = open_below ? value > low : value >= low;
  if (std::isfinite(value) && above && value <= high) return {};
  if (std::isinf(high)) {
    return fail("{} is {}, expected a finite number {} {}", field, value,
                open_below ? "above" : "of at least", low);
  }
  return fail("{} is {}, expected a number {} {} and at most {}", field, value,
              open_below ? "above" : "of at least", low, high);
}

Result<> check_whole(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  if (high == INT64_MAX) return fail("{} is {}, expected at least {}", field, value, low);
  return fail("{} is {}, expected {} to {}", field, value, low, high);
}

Result<> check_token(std::string_view field, int64_t token, std::optional<int64_t> vocab_size) {
  if (token >= 0 && token < vocab_size.value_or(INT32_MAX)) return {};
  if (!vocab_size) return fail("{} names token {}, which no vocabulary has", field, token);
  return fail("{} names token {}, the vocabulary has 0 to {}", field, token, *vocab_size - 1);
}

Result<> check_stopping(const SamplingParams& params, std::optional<int64_t> vocab_size) {
  if (params.stop.size() > kMaxStops) {
    return fail("stop has {} strings, expected at most {}", params.stop.size(), kMaxStops);
  }
  for (const std::string& text : params.stop) {
    if (text.empty()) return fail("stop has an empty string, expected at least one character");
    if (text.size() > kMaxStopBytes) {
      return fail("stop has a string of {} bytes, expected at most {}", text.size(), kMaxStopBytes);
    }
  }
  if (params.stop_token_ids.size() > kMaxTokenList) {
    return fail("stop_token_ids has {} entries, expected at most {}", params.stop_token_ids.size(),
                kMaxTokenList);
  }
  for (const int64_t token : params.stop_token_ids) {
    MR_TRY(check_token("stop_token_ids", token, vocab_size));
  }
  if (params.max_tokens) MR_TRY(check_whole("max_tokens", *params.max_tokens, 1, INT64_MAX));
  MR_TRY(check_whole("min_tokens", params.min_tokens, 0, INT64_MAX));
  if (params.max_tokens && params.min_tokens > *params.max_tokens) {
    return fail("min_tokens is {}, expected at most max_tokens, which is {}", params.min_tokens,
                *params.max_tokens);
  }
  return {};
}

}  // namespace

Result<> validate(const SamplingParams& params, std::optional<int64_t> vocab_size) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  MR_TRY(check_real("temperature", params.temperature, 0, kInfinity));
  MR_TRY(check_whole("top_k", params.top_k, -1, INT64_MAX));
  MR_TRY(check_real("top_p", params.top_p, 0, 1, /*open_below=*/true));
  MR_TRY(check_real("min_p", params.min_p, 0, 1));
  MR_TRY(check_real("repetition_penalty", params.repetition_penalty, 0, kInfinity,
                    /*open_below=*/true));
  MR_TRY(check_real("presence_penalty", params.presence_penalty, -2, 2));
  MR_TRY(check_real("frequency_penalty", params.frequency_penalty, -2, 2));
  if (params.logit_bias.size() > kMaxTokenList) {
    return fail("logit_bias has {} entries, expected at most {}", params.logit_bias.size(),
                kMaxTokenList);
  }
  for (const auto& [token, bias] : params.logit_bias) {
    MR_TRY(check_token("logit_bias", token, vocab_size));
    MR_TRY(check_real(fmt::format("logit_bias of token {}", token), bias, -100, 100));
  }
  MR_TRY(check_whole("n", params.n, 1, kMaxSamples));
  if (params.logprobs) MR_TRY(check_whole("logprobs", *params.logprobs, 0, kMaxLogprobs));
  return check_stopping(params, vocab_size);
}

SamplerSettings sampler_settings(const SamplingParams& params,
                                 std::span<const int32_t> eos_token_ids, uint64_t seed,
                                 uint32_t sample_index) {
  SamplerSettings settings;
  settings.draw.temperature = static_cast<float>(params.temperature);
  settings.draw.top_k = static_cast<int32_t>(std::clamp<int64_t>(params.top_k, 0, INT32_MAX));
  settings.draw.top_p = static_cast<float>(params.top_p);
  settings.draw.min_p = static_cast<float>(params.min_p);
  settings.penalties.repetition = static_cast<float>(params.repetition_penalty);
  settings.penalties.frequency = static_cast<float>(params.frequency_penalty);
  settings.penalties.presence = static_cast<float>(params.presence_penalty);
  for (const auto& [token, bias] : params.logit_bias) {
    settings.logit_bias.push_back({static_cast<int32_t>(token), static_cast<float>(bias)});
  }
  if (!params.ignore_eos) {
    settings.end_tokens.assign(eos_token_ids.begin(), eos_token_ids.end());
  }
  for (const int64_t token : params.stop_token_ids) {
    settings.end_tokens.push_back(static_cast<int32_t>(token));
  }
  settings.min_tokens = params.min_tokens;
  if (params.logprobs) settings.logprobs = static_cast<int>(*params.logprobs);
  settings.seed = seed;
  settings.sample_index = sample_index;
  return settings;
}

}  // namespace millrace
