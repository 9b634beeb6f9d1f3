// The RoPE part of config.json: `rope_parameters`, or the older `rope_theta` and `rope_scaling`.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "config/json_fields.h"
#include "config/model_config.h"

namespace millrace {

// What the architecture says about its RoPE.
struct HfRopeSpec {
  int head_dim = 0;  // elements that rotate if all do; rotary_dim is a share of them
  int64_t max_position_embeddings = 0;
  // Share of head_dim that rotates if the file does not say; other architectures take only 1.
  bool may_be_partial = false;
  double default_partial = 1.0;
};

struct HfRope {
  RopeConfig rope;  // `interleaved` is left false
  // m(mscale_all_dim)^2, which multiplies MLA's softmax scale; 1 without scaling.
  double softmax_factor = 1.0;
};

// Reads the RoPE fields of `fields` (top level of config.json). A value in the dict wins over the
// top-level key, and that over the default.
Result<HfRope> parse_hf_rope(JsonFields& fields, const HfRopeSpec& spec);

}  // namespace millrace
