// The parts of config.json that dense models do not have: latent attention, its indexer, and
// mixtures of experts.
#pragma once

#include "base/error.h"
#include "config/hf_rope.h"
#include "config/json_fields.h"
#include "config/model_config.h"

namespace millrace {

// These read and check their fields for config.architecture; config.num_layers is set.

// Fills config.mla but for its softmax scale, config.head_dim and num_kv_heads; num_heads is set.
Result<> parse_hf_mla(JsonFields& fields, ModelConfig& config);

// Sets what depends on RoPE: layout of the pairs, and MLA's softmax scale. Dense architectures are
// left as they are.
Result<> apply_hf_rope(JsonFields& fields, const HfRope& rope, ModelConfig& config);

// Fills config.indexer; config.mla is set.
Result<> parse_hf_indexer(JsonFields& fields, ModelConfig& config);

// Fills config.moe and num_mtp_layers.
Result<> parse_hf_moe(JsonFields& fields, ModelConfig& config);

}  // namespace millrace
