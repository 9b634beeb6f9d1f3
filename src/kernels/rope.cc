#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "kernels/math.h"

namespace millrace {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// Llama 3.1: long wavelengths are divided by the factor, short ones kept, a blend between.
float llama3_frequency(const RopeParameters& p, float inv_freq) {
  const double wavelength = kTwoPi / inv_freq;
  if (wavelength < p.original_max_position / p.high_freq_factor) return inv_freq;
  if (wavelength > p.original_max_position / p.low_freq_factor) {
    return static_cast<float>(inv_freq / p.factor);
  }
  const double smooth = (p.original_max_position / wavelength - p.low_freq_factor) /
                        (p.high_freq_factor - p.low_freq_factor);
  return static_cast<float>((1.0 - smooth) * inv_freq / p.factor + smooth * inv_freq);
}

// The dimension whose frequency makes `rotations` turns over the original context.
double yarn_dimension(const RopeParameters& p, double rotations) {
  return p.rotary_dim * log_f64(p.original_max_position / (rotations * kTwoPi)) /
         (2.0 * log_f64(p.theta));
}

void apply_yarn(const RopeParameters& p, std::vector<float>& inv_freq) {
  double low = yarn_dimension(p, p.beta_fast);
  double high = yarn_dimension(p, p.beta_slow);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(p.rotary_dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = static_cast<float>(inv_freq[i] / p.factor * ramp + inv_freq[i] * (1.0 - ramp));
  }
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeParameters& p) {
  MR_CHECK(p.rotary_dim >= 2 && p.rotary_dim % 2 == 0, "rotary_dim {}", p.rotary_dim);
  std::vector<float> inv_freq(static_cast<size_t>(p.rotary_dim / 2));
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    // The reference rounds the exponent, the power and its inverse to fp32.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(p.rotary_dim);
    inv_freq[i] = 1.0f / static_cast<float>(pow_f64(p.theta, exponent));
  }
  switch (p.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (float& f : inv_freq) f = static_cast<float>(f / p.factor);
      break;
    case RopeScaling::kLlama3:
      for (float& f : inv_freq) f = llama3_frequency(p, f);
      break;
    case RopeScaling::kYarn:
      apply_yarn(p, inv_freq);
      break;
  }
  if (!p.freq_divisors.empty()) {
    MR_CHECK(p.freq_divisors.size() == inv_freq.size(), "{} frequency divisors for {} frequencies",
             p.freq_divisors.size(), inv_freq.size());
    for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= p.freq_divisors[i];
  }
  return inv_freq;
}

void rope_cos_sin(std::span<const float> inv_freq, float attention_factor,
                  std::span<const int32_t> positions, float* cos, float* sin) {
  for (const int32_t position : positions) {
    for (const float frequency : inv_freq) {
      double s = 0;
      double c = 0;
      sincos_f64(static_cast<float>(position) * frequency, s, c);
      *cos++ = static_cast<float>(c) * attention_factor;
      *sin++ = static_cast<float>(s) * attention_factor;
    }
  }
}

}  // namespace millrace
