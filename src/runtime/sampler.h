// One sequence's sampler: its settings, what it has seen, and the next token from a row of logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/sampling.h"

namespace millrace {

// Settings that do not change over a sequence's life; already checked.
struct SamplerSettings {
  DrawSettings draw;
  PenaltySettings penalties;
  std::vector<LogitBias> logit_bias;
  std::vector<int32_t> end_tokens;  // banned for the first min_tokens tokens
  int64_t min_tokens = 0;
  std::optional<int> logprobs;  // number of alternatives to report; absent: no log-probabilities
  uint64_t seed = 0;
  uint32_t sample_index = 0;
};

struct SampledToken {
  int32_t id = 0;
  std::optional<TokenLogprobs> logprobs;
};

// Scratch memory of samplers, shared by the sequences of a step.
struct SamplerScratch {
  std::vector<float> logits;
  SamplingScratch kernel;
};

class SequenceSampler {
 public:
  // `prompt` counts for the repetition penalty.
  SequenceSampler(SamplerSettings settings, std::span<const int32_t> prompt);

  // The token that follows position - 1, and remembers it. `logits` is the row of the sequence's
  // last token; `position` is where the new token will stand. The same arguments after the same
  // calls give the same token.
  SampledToken sample(std::span<const float> logits, int64_t position, SamplerScratch& scratch);

  // True if this token ends the answer.
  bool is_end_token(int32_t token) const;

  int64_t num_generated() const { return num_generated_; }

 private:
  void count(int32_t token, int32_t generated);

  SamplerSettings settings_;
  int64_t num_generated_ = 0;
  // Tokens seen, each once, and where in the list a token is. Kept only if a penalty is on.
  std::vector<TokenCount> counts_;
  std::unordered_map<int32_t, size_t> count_of_;
};

}  // namespace millrace
