#include "runtime/sampler.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace millrace {

SequenceSampler::SequenceSampler(SamplerSettings settings, std::span<const int32_t> prompt)
    : settings_(std::move(settings)) {
  if (!settings_.penalties.active()) return;
  for (const int32_t token : prompt) count(token, 0);
}

void SequenceSampler::count(int32_t token, int32_t generated) {
  const auto [entry, is_new] = count_of_.try_emplace(token, counts_.size());
  if (is_new) counts_.push_back({token, 0});
  counts_[entry->second].num_generated += generated;
}

bool SequenceSampler::is_end_token(int32_t token) const {
  const auto& ends = settings_.end_tokens;
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

SampledToken SequenceSampler::sample(std::span<const float> logits, int64_t position,
                                     SamplerScratch& scratch) {
  const bool bans_ends = num_generated_ < settings_.min_tokens && !settings_.end_tokens.empty();
  std::span<const float> adjusted = logits;
  if (settings_.penalties.active() || !settings_.logit_bias.empty() || bans_ends) {
    scratch.logits.assign(logits.begin(), logits.end());
    apply_logit_bias(scratch.logits, settings_.logit_bias);
    apply_penalties(scratch.logits, counts_, settings_.penalties);
    if (bans_ends) {
      for (const int32_t token : settings_.end_tokens) {
        const LogitBias ban{token, -std::numeric_limits<float>::infinity()};
        apply_logit_bias(scratch.logits, {&ban, 1});
      }
    }
    adjusted = scratch.logits;
  }

  SampledToken token;
  const RandomKey key{settings_.seed, settings_.sample_index, position, RandomUse::kToken};
  token.id = draw_token(adjusted, settings_.draw, key, scratch.kernel);
  if (settings_.logprobs) {
    token.logprobs = compute_logprobs(logits, token.id, *settings_.logprobs, scratch.kernel);
  }
  if (settings_.penalties.active()) count(token.id, 1);
  ++num_generated_;
  return token;
}

}  // namespace millrace
