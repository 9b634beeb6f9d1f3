// The parts of GGUF metadata that dense models do not have: latent attention, its indexer, and
// mixtures of experts. Keys as llama.cpp's converters write them.
#pragma once

#include <string_view>

#include "base/error.h"
#include "config/gguf_fields.h"
#include "config/model_config.h"

namespace millrace {

// A key that is read below for this architecture.
bool is_sparse_gguf_key(std::string_view name, Architecture architecture);

// Fills config.mla but for its softmax scale, config.head_dim and num_kv_heads; num_heads is set.
Result<> parse_gguf_mla(const ArchFields& fields, ModelConfig& config);

// block_count counts the multi-token-prediction layers, which come last: takes them off num_layers.
Result<> take_off_gguf_mtp_layers(const ArchFields& fields, ModelConfig& config);

// Fills config.moe; num_layers is final.
Result<> parse_gguf_moe(const ArchFields& fields, const GgufTensorFacts& facts,
                        ModelConfig& config);

// Fills config.indexer; config.mla and num_layers are final.
Result<> parse_gguf_indexer(const ArchFields& fields, const GgufTensorFacts& facts,
                            ModelConfig& config);

// Under YaRN: divides rope.attention_factor as mscale_all_dim asks; rope.factor is set.
Result<> apply_gguf_mscale(const ArchFields& fields, Architecture architecture, RopeConfig& rope);

// Sets config.mla's softmax scale; config.rope is set.
Result<> set_gguf_softmax_scale(const ArchFields& fields, ModelConfig& config);

}  // namespace millrace
