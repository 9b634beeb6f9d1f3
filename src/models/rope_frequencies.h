// RoPE frequencies of a model's configuration.
#pragma once

#include <vector>

#include "config/model_config.h"

namespace millrace {

// inv_freq[i] for i < rotary_dim / 2 (kernels/rope.h).
std::vector<float> inverse_frequencies(const RopeConfig& rope);

}  // namespace millrace
