#include "weights/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace millrace {
namespace {

struct Names {
  const char* hugging_face;
  const char* gguf;
};

constexpr std::array<Names, 3> kModelNames = {{
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
}};

constexpr std::array<Names, 11> kLayerNames = {{
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
}};

// Old exports stored these beside the weights.
constexpr std::array<std::string_view, 3> kConstantSuffixes = {
    ".rotary_emb.inv_freq", ".attn_rot_embd.weight", "attn.masked_bias"};

}  // namespace

std::string tensor_name(NameStyle style, ModelTensor tensor) {
  const Names& names = kModelNames[static_cast<size_t>(tensor)];
  return fmt::format("{}.weight", style == NameStyle::kGguf ? names.gguf : names.hugging_face);
}

std::string tensor_name(NameStyle style, LayerTensor tensor, int64_t layer, const char* suffix) {
  const Names& names = kLayerNames[static_cast<size_t>(tensor)];
  return style == NameStyle::kGguf
             ? fmt::format("blk.{}.{}.{}", layer, names.gguf, suffix)
             : fmt::format("model.layers.{}.{}.{}", layer, names.hugging_face, suffix);
}

bool is_in_decoder(NameStyle style, std::string_view name) {
  const bool gguf = style == NameStyle::kGguf;
  if (name.starts_with(gguf ? "blk." : "model.layers.")) return true;
  return std::ranges::any_of(kModelNames, [&](const Names& names) {
    const std::string_view module = gguf ? names.gguf : names.hugging_face;
    return name.starts_with(module) && name.substr(module.size()).starts_with('.');
  });
}

bool is_constant(std::string_view name) {
  return name == "rope_freqs.weight" ||
         std::ranges::any_of(kConstantSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace millrace
