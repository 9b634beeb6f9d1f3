#include "weights/tensor_names.h"

#include <array>

#include <fmt/format.h>

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

}  // namespace

std::string tensor_name(NameStyle style, ModelTensor tensor) {
  const Names& names = kModelNames[static_cast<size_t>(tensor)];
  return fmt::format("{}.weight",
                     style == NameStyle::kGguf ? names.gguf : names.hugging_face);
}

std::string tensor_name(NameStyle style, LayerTensor tensor, int64_t layer, const char* suffix) {
  const Names& names = kLayerNames[static_cast<size_t>(tensor)];
  return style == NameStyle::kGguf
             ? fmt::format("blk.{}.{}.{}", layer, names.gguf, suffix)
             : fmt::format("model.layers.{}.{}.{}", layer, names.hugging_face, suffix);
}

}  // namespace millrace
