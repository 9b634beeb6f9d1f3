// Which tensor of a checkpoint holds which weight: one table, Hugging Face and GGUF names side by
// side.
//
// A module is a tensor's name without its last part: "model.layers.3.self_attn.q_proj" holds
// "weight" and "bias", and in quantised checkpoints more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// Weights of a model outside of its layers.
enum class ModelTensor : uint8_t { kEmbedding, kFinalNorm, kHead };

// Weights of one decoder layer. Matrices are [outputs, inputs].
enum class LayerTensor : uint8_t {
  kInputNorm,
  // Grouped-query attention.
  kQ,  // with latent attention: the query without a low rank
  kK,
  kV,
  kO,
  kQNorm,
  kKNorm,
  // Multi-head latent attention.
  kQA,
  kQANorm,
  kQB,
  kKvA,
  kKvANorm,
  kKvB,  // Hugging Face, older GGUF
  kKUp,  // GGUF: the key half of kv_b, each head's transposed
  kVUp,  // GGUF: the value half
  // Indexer.
  kIndexerQ,
  kIndexerK,
  kIndexerKNorm,
  kIndexerHeadWeights,
  // MLP; norms before it.
  kPostAttentionNorm,
  kPostAttentionNormGlm4,  // the same in GGUF's glm4moe
  kGate,
  kUp,
  kDown,
  // Mixture of experts.
  kRouter,
  kCorrectionBias,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  // GGUF: all experts of a layer, [experts, outputs, inputs].
  kExpertsGate,
  kExpertsUp,
  kExpertsDown,
};

enum class NameStyle : uint8_t { kHuggingFace, kGguf };

// "model.embed_tokens" or "token_embd".
std::string module_name(NameStyle style, ModelTensor tensor);
// "model.layers.3.self_attn.q_proj" or "blk.3.attn_q". Internal error if the style has no such
// name.
std::string module_name(NameStyle style, LayerTensor tensor, int64_t layer);
// Hugging Face: "model.layers.3.mlp.experts.17.gate_proj"; `tensor` is kGate, kUp or kDown.
std::string expert_module_name(LayerTensor tensor, int64_t layer, int64_t expert);

// "model.embed_tokens.weight" or "token_embd.weight".
std::string tensor_name(NameStyle style, ModelTensor tensor);

// "model.layers.3.self_attn.q_proj.weight" or "blk.3.attn_q.weight"; `suffix` is "weight" or
// "bias".
std::string tensor_name(NameStyle style, LayerTensor tensor, int64_t layer,
                        const char* suffix = "weight");

// "model.layers.3.mlp.gate.e_score_correction_bias" or "blk.3.exp_probs_b.bias".
std::string correction_bias_name(NameStyle style, int64_t layer);

// True for tensors of the modules above, whatever their suffix, and for everything in the decoder's
// layers: "model.layers.0.self_attn.q_proj.bias", "output.bias".
bool is_in_decoder(NameStyle style, std::string_view name);

// The layer in a tensor's name: 3 for "model.layers.3.mlp.gate.weight". Nothing if it has none.
std::optional<int64_t> layer_of(NameStyle style, std::string_view name);

// True for weights of a layer's indexer.
bool is_of_indexer(std::string_view name);

// True for tensors that are no weights: buffers that follow from the configuration, and divisors of
// the RoPE frequencies, which are read with it.
bool is_constant(std::string_view name);

}  // namespace millrace
