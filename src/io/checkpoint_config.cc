#include "io/checkpoint_config.h"

#include <algorithm>
#include <iterator>

namespace millrace {
namespace {

// rope_freqs.weight as numbers; empty if the model has none.
Result<std::vector<float>> read_rope_freqs(const Gguf& gguf) {
  const GgufTensor* tensor = gguf.find("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>{};
  if (tensor->format != WeightFormat::kF32 || tensor->shape.size() != 1) {
    return fail("tensor rope_freqs.weight: found [{}] of {}, expected one row of F32",
                fmt::join(tensor->shape, ", "), name_of(tensor->format));
  }
  std::vector<float> values(static_cast<size_t>(tensor->shape[0]));
  dequantize_row(tensor->format, tensor->bytes.data(), values.data(), tensor->shape[0]);
  return values;
}

// The type of the largest tensor that is not quantised: what the rest was made from, as far as the
// file tells.
DType published_dtype(const Gguf& gguf) {
  size_t largest = 0;
  DType dtype = DType::kF32;
  for (const auto& [name, tensor] : gguf.tensors()) {
    if (is_quantized(tensor.format) || tensor.bytes.size() <= largest) continue;
    largest = tensor.bytes.size();
    dtype = tensor.format == WeightFormat::kF16    ? DType::kF16
            : tensor.format == WeightFormat::kBF16 ? DType::kBF16
                                                   : DType::kF32;
  }
  return dtype;
}

Result<ModelConfig> config_of(const Gguf& gguf) {
  GgufTensorFacts facts;
  MR_ASSIGN(facts.rope_freqs, read_rope_freqs(gguf));
  facts.has_output = gguf.find("output.weight") != nullptr;
  facts.has_q_bias = gguf.find("blk.0.attn_q.bias") != nullptr;
  facts.has_o_bias = gguf.find("blk.0.attn_output.bias") != nullptr;
  facts.has_mlp_bias = gguf.find("blk.0.ffn_down.bias") != nullptr;
  facts.has_qk_norm = gguf.find("blk.0.attn_q_norm.weight") != nullptr;
  facts.dtype = published_dtype(gguf);
  if (const GgufTensor* embedding = gguf.find("token_embd.weight")) {
    facts.embedding_rows = embedding->shape.size() == 2 ? embedding->shape[0] : 0;
  }
  return parse_gguf_config(gguf.metadata(), facts);
}

Result<ModelConfig> config_of_folder(const Checkpoint& checkpoint) {
  auto config = parse_hf_config(checkpoint.config_json());
  if (!config) return fail_in("config.json", config.error());
  const nlohmann::json& generation = checkpoint.generation_config_json();
  if (!generation.is_object() || !generation.contains("eos_token_id")) return config;
  const auto ends = parse_eos_token_ids(&generation["eos_token_id"]);
  if (!ends) return fail_in("generation_config.json", ends.error());
  std::vector<int64_t> both;
  std::ranges::set_union(config->eos_token_ids, *ends, std::back_inserter(both));
  config->eos_token_ids = std::move(both);
  if (auto valid = validate(*config); !valid) {
    return fail_in("generation_config.json", valid.error());
  }
  return config;
}

}  // namespace

Result<ModelConfig> read_model_config(const Checkpoint& checkpoint) {
  auto config = checkpoint.is_gguf() ? config_of(*checkpoint.gguf()) : config_of_folder(checkpoint);
  if (!config) return fail_in(checkpoint.path(), config.error());
  return config;
}

}  // namespace millrace
