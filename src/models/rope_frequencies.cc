#include "models/rope_frequencies.h"

#include "kernels/rope.h"

namespace millrace {
namespace {

RopeScaling scaling_of(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return RopeScaling::kNone;
    case RopeType::kLinear:
      return RopeScaling::kLinear;
    case RopeType::kLlama3:
      return RopeScaling::kLlama3;
    case RopeType::kYarn:
      return RopeScaling::kYarn;
  }
  return RopeScaling::kNone;
}

}  // namespace

std::vector<float> inverse_frequencies(const RopeConfig& rope) {
  return rope_inverse_frequencies(
      {.scaling = scaling_of(rope.type),
       .theta = rope.theta,
       .rotary_dim = rope.rotary_dim,
       .factor = rope.factor,
       .low_freq_factor = rope.low_freq_factor,
       .high_freq_factor = rope.high_freq_factor,
       .original_max_position = static_cast<double>(rope.original_max_position),
       .beta_fast = rope.beta_fast,
       .beta_slow = rope.beta_slow,
       .truncate = rope.truncate,
       .freq_divisors = rope.freq_divisors});
}

}  // namespace millrace
