#include "weights/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"

namespace millrace {
namespace {

// Null: the style has no such tensor.
struct Names {
  const char* hugging_face;
  const char* gguf;
};

constexpr std::array<Names, 3> kModelNames = {{
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
}};

// In the order of LayerTensor.
constexpr std::array<Names, 32> kLayerNames = {{
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {nullptr, "attn_k_b"},
    {nullptr, "attn_v_b"},
    {"self_attn.indexer.wq_b", "indexer.attn_q_b"},
    {"self_attn.indexer.wk", "indexer.attn_k"},
    {"self_attn.indexer.k_norm", "indexer.k_norm"},
    {"self_attn.indexer.weights_proj", "indexer.proj"},
    {"post_attention_layernorm", "ffn_norm"},
    {nullptr, "post_attention_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.gate", "exp_probs_b"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {nullptr, "ffn_gate_exps"},
    {nullptr, "ffn_up_exps"},
    {nullptr, "ffn_down_exps"},
}};

// Old exports stored these beside the weights.
constexpr std::array<std::string_view, 3> kConstantSuffixes = {
    ".rotary_emb.inv_freq", ".attn_rot_embd.weight", "attn.masked_bias"};

std::string_view layers_prefix(NameStyle style) {
  return style == NameStyle::kGguf ? "blk." : "model.layers.";
}

}  // namespace

std::string module_name(NameStyle style, ModelTensor tensor) {
  const Names& names = kModelNames[static_cast<size_t>(tensor)];
  return style == NameStyle::kGguf ? names.gguf : names.hugging_face;
}

std::string module_name(NameStyle style, LayerTensor tensor, int64_t layer) {
  const Names& names = kLayerNames[static_cast<size_t>(tensor)];
  const char* name = style == NameStyle::kGguf ? names.gguf : names.hugging_face;
  MR_CHECK(name != nullptr, "no name for tensor {}", static_cast<int>(tensor));
  return fmt::format("{}{}.{}", layers_prefix(style), layer, name);
}

std::string expert_module_name(LayerTensor tensor, int64_t layer, int64_t expert) {
  std::string_view name = kLayerNames[static_cast<size_t>(tensor)].hugging_face;
  name.remove_prefix(name.find('.') + 1);
  return fmt::format("model.layers.{}.mlp.experts.{}.{}", layer, expert, name);
}

std::string tensor_name(NameStyle style, ModelTensor tensor) {
  return module_name(style, tensor) + ".weight";
}

std::string tensor_name(NameStyle style, LayerTensor tensor, int64_t layer, const char* suffix) {
  return fmt::format("{}.{}", module_name(style, tensor, layer), suffix);
}

std::string correction_bias_name(NameStyle style, int64_t layer) {
  return tensor_name(style, LayerTensor::kCorrectionBias, layer,
                     style == NameStyle::kGguf ? "bias" : "e_score_correction_bias");
}

bool is_in_decoder(NameStyle style, std::string_view name) {
  if (name.starts_with(layers_prefix(style))) return true;
  return std::ranges::any_of(kModelNames, [&](const Names& names) {
    const std::string_view module = style == NameStyle::kGguf ? names.gguf : names.hugging_face;
    return name.starts_with(module) && name.substr(module.size()).starts_with('.');
  });
}

std::optional<int64_t> layer_of(NameStyle style, std::string_view name) {
  const std::string_view prefix = layers_prefix(style);
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.' || layer < 0) {
    return std::nullopt;
  }
  return layer;
}

bool is_of_indexer(std::string_view name) {
  return name.find(".indexer.") != std::string_view::npos;
}

bool is_constant(std::string_view name) {
  return name == "rope_freqs.weight" ||
         std::ranges::any_of(kConstantSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace millrace
