// The flags that say how an answer is sampled and when it ends, under the API's names.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/sampling_params.h"

namespace millrace {

// Values as typed; what is absent keeps the model's default.
struct SamplingFlags {
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  std::optional<uint64_t> seed;
  int64_t n = 1;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  bool ignore_eos = false;
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  std::optional<int64_t> logprobs;

  // `defaults` with what was typed. An error names the flag; ranges are checked by validate().
  Result<SamplingParams> apply_to(SamplingParams defaults) const;
};

// Adds the flags to a command, in a help group of their own.
void add_sampling_flags(CLI::App& command, SamplingFlags& flags);

}  // namespace millrace
