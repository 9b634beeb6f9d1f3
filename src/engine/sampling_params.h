// How a request wants its answer: the sampling and stopping fields of the API, under its names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/sampler.h"

namespace millrace {

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // 0 or -1: off
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::vector<std::pair<int64_t, double>> logit_bias;  // (token id, bias)
  std::optional<uint64_t> seed;                        // absent: another one for each request
  int64_t n = 1;                                       // answers to the same prompt
  std::vector<std::string> stop;                       // strings that end the answer
  std::vector<int64_t> stop_token_ids;
  bool ignore_eos = false;
  std::optional<int64_t> max_tokens;  // absent: as many as the context and the pool hold
  int64_t min_tokens = 0;
  std::optional<int64_t> logprobs;  // alternatives reported per token; absent: none, not even own
};

// Checks every field; of token ids as much as can be told where the vocabulary is not known yet. An
// error names the field, its value and what is allowed.
Result<> validate(const SamplingParams& params, std::optional<int64_t> vocab_size);

// Settings of one sample's sampler. `params` has been validated; `eos_token_ids` are the model's
// end tokens; `seed` is the one of the request, given or drawn.
SamplerSettings sampler_settings(const SamplingParams& params,
                                 std::span<const int32_t> eos_token_ids, uint64_t seed,
                                 uint32_t sample_index);

}  // namespace millrace
