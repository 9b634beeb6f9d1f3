// Which tensor of a checkpoint holds which weight: one table, Hugging Face and GGUF names side by
// side.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// Weights of a model outside of its layers.
enum class ModelTensor : uint8_t { kEmbedding, kFinalNorm, kHead };

// Weights of one dense decoder layer. Matrices are [outputs, inputs].
enum class LayerTensor : uint8_t {
  kInputNorm,
  kQ,
  kK,
  kV,
  kO,
  kQNorm,
  kKNorm,
  kPostAttentionNorm,
  kGate,
  kUp,
  kDown,
};

enum class NameStyle : uint8_t { kHuggingFace, kGguf };

// "model.embed_tokens.weight" or "token_embd.weight".
std::string tensor_name(NameStyle style, ModelTensor tensor);

// "model.layers.3.self_attn.q_proj.weight" or "blk.3.attn_q.weight"; `suffix` is "weight" or
// "bias".
std::string tensor_name(NameStyle style, LayerTensor tensor, int64_t layer,
                        const char* suffix = "weight");

// True for tensors of the modules above, whatever their suffix, and for everything in the decoder's
// layers: "model.layers.0.self_attn.q_proj.bias", "output.bias".
bool is_in_decoder(NameStyle style, std::string_view name);

// True for tensors that are no weights: buffers that follow from the configuration, and divisors of
// the RoPE frequencies, which are read with it.
bool is_constant(std::string_view name);

}  // namespace millrace
