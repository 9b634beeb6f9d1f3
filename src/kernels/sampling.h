// Sampling: from a row of logits to a token, the same bits on every machine.
//
// Order of work on a row (vLLM's): logit bias, repetition / frequency / presence penalties,
// temperature, min-p, top-k, top-p, draw. Comparisons are of numbers: -0 = +0, NaN = -inf, ties go
// to the lower id.
//
// The draw is a race (Gumbel-max): of the tokens that are left, the one with the largest
// z_i + g_i wins, where z_i is the logit over the temperature and g_i is Gumbel noise that is a
// function of (seed, sample index, position, use, token id) alone. This draws from softmax(z)
// without summing over the vocabulary, so it does not depend on how the vocabulary is cut, and the
// same noise serves whatever filters are on. Source: Gumbel-max trick (Maddison, Tarlow, Minka:
// A* Sampling, 2014, section 2).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/isa.h"

namespace millrace {

// What a random number is for: draws of different uses at one position are independent.
enum class RandomUse : uint32_t { kToken = 0 };

// Identity of one draw.
struct RandomKey {
  uint64_t seed = 0;
  uint32_t sample_index = 0;  // which of a request's n samples
  int64_t position = 0;       // of the token that is drawn, in its sequence
  RandomUse use = RandomUse::kToken;
};

// Counter-based random numbers: word `counter` of the SplitMix64 stream (Steele, Lea, Flood 2014)
// whose start is a hash of the key. Any word costs the same, in any order.
class RandomStream {
 public:
  explicit RandomStream(const RandomKey& key);

  uint64_t word(uint64_t counter) const { return mix(start_ + (counter + 1) * kGolden); }

  // The finaliser of SplitMix64.
  static constexpr uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

 private:
  static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  uint64_t start_;
};

// Gumbel noise of a 64-bit random word: -log(-log(1 - u)), u = (upper 32 bits + 1/2) / 2^32.
// Between -3.2 and 22.9.
float gumbel_noise(uint64_t word);

// A number that is added to a token's logit.
struct LogitBias {
  int32_t token = 0;
  float bias = 0;  // may be -inf: the token is banned
};

// A token that occurs in the sequence so far.
struct TokenCount {
  int32_t token = 0;
  int32_t num_generated = 0;  // occurrences among the generated tokens; 0: only in the prompt
};

struct PenaltySettings {
  float repetition = 1;  // of tokens of prompt and answer: > 0 divided, else multiplied by this
  float frequency = 0;   // subtracted per occurrence in the answer
  float presence = 0;    // subtracted once if in the answer

  bool active() const { return repetition != 1 || frequency != 0 || presence != 0; }
};

struct DrawSettings {
  float temperature = 1;  // below kGreedyTemperature: the largest logit, and no filter matters
  int32_t top_k = 0;      // 0: off; else the k largest logits stay
  float top_p = 1;        // the likeliest tokens whose probabilities sum to at least this stay
  float min_p = 0;        // tokens at least this likely, relative to the likeliest, stay
};

inline constexpr float kGreedyTemperature = 1e-5f;

// Log-probabilities of one position, from the unchanged logits.
struct TokenLogprobs {
  float logprob = 0;                           // of the token that was taken
  std::vector<std::pair<int32_t, float>> top;  // (id, log-probability), likeliest first
};

// Room that sampling works in, kept by the caller from call to call, and the instruction set to use
// (which never changes a result).
struct SamplingScratch {
  Isa isa = Isa::kPortable;
  std::vector<int32_t> candidates;
  std::vector<float> chunk_max;
  std::vector<float> weights;
};

// Id of the largest logit. All -inf or NaN: 0. Requires a row of at least one.
int32_t argmax(std::span<const float> logits);

// logits[token] += bias, for each entry in order. Ids outside of the row are ignored.
void apply_logit_bias(std::span<float> logits, std::span<const LogitBias> biases);

// Applies the penalties to the tokens listed (each at most once).
void apply_penalties(std::span<float> logits, std::span<const TokenCount> counts,
                     const PenaltySettings& penalties);

// Draws a token from adjusted logits. If no logit is finite, or one is +inf, this is argmax.
int32_t draw_token(std::span<const float> logits, const DrawSettings& settings,
                   const RandomKey& key, SamplingScratch& scratch);

// Log-softmax of the row at `token`, and of its `num_top` largest logits. A row without a finite
// largest logit has none: 0 and an empty list.
TokenLogprobs compute_logprobs(std::span<const float> logits, int32_t token, int num_top,
                               SamplingScratch& scratch);

}  // namespace millrace
