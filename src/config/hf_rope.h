// The RoPE part of config.json: `rope_parameters`, or the older `rope_theta` and `rope_scaling`.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "config/json_fields.h"
#include "config/model_config.h"

namespace millrace {

// Reads the RoPE fields of `fields` (top level of config.json). A value in the dict wins over the
// top-level key, and that over the default. rotary_dim is set from `head_dim`.
Result<RopeConfig> parse_hf_rope(JsonFields& fields, int head_dim, int64_t max_position_embeddings);

// YaRN's multiplier of cos and sin when none is given: m(mscale) / m(mscale_all_dim) if both are
// set and not 0, else m(1), where m(s) = 0.1 s ln(factor) + 1.
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

}  // namespace millrace
