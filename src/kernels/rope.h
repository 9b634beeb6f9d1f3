// Rotary position embedding: frequencies of each scaling type, cos and sin of positions, rotation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace millrace {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

// What the frequencies depend on. Ranges are the configuration's to check: theta > 0, rotary_dim
// even, factor > 0, original_max_position > 0 where it is used.
struct RopeParameters {
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 10000.0;
  int rotary_dim = 0;                // elements of a head that rotate: the first ones
  double factor = 1.0;               // linear, llama3, yarn
  double low_freq_factor = 1.0;      // llama3
  double high_freq_factor = 4.0;     // llama3
  double original_max_position = 0;  // llama3, yarn
  double beta_fast = 32.0;           // yarn
  double beta_slow = 1.0;            // yarn
  bool truncate = true;              // yarn: round the ramp's ends outwards
  // Empty, or rotary_dim / 2 values by which the frequencies are divided (GGUF rope_freqs), after
  // the scaling.
  std::vector<float> freq_divisors;
};

// inv_freq[i] for i < rotary_dim / 2, in radians per position: theta^(-2i / rotary_dim), changed as
// the scaling says. Rounded where the reference implementation, which works in fp32, rounds.
// Sources: Su et al. 2021 (RoFormer); Llama 3.1's scaling; Peng et al. 2023 (YaRN).
std::vector<float> rope_inverse_frequencies(const RopeParameters& parameters);

// cos and sin of the fp32 product float(position) * inv_freq[i], each times attention_factor:
// cos, sin [positions][inv_freq.size()]. They stay fp32 whatever the activations' type.
void rope_cos_sin(std::span<const float> inv_freq, float attention_factor,
                  std::span<const int32_t> positions, float* cos, float* sin);

// Rotates the first rotary_dim elements of each head in place; the rest pass. Pairs (a, b) are
// elements (2i, 2i + 1) if interleaved, else (i, i + rotary_dim / 2), and become
// a' = round(fma(a, cos, -(b * sin))), b' = round(fma(b, cos, a * sin)).
struct RopeArgs {
  float* x = nullptr;  // [rows][row_stride], heads side by side
  int64_t row_stride = 0;
  int num_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;
  bool interleaved = false;
  const float* cos = nullptr;  // [rows][rotary_dim / 2]
  const float* sin = nullptr;
  DType dtype = DType::kF32;
};

// Computes rows [row_begin, row_end).
using RopeFunction = void (*)(const RopeArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace millrace
