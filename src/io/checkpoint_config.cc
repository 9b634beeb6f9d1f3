#include "io/checkpoint_config.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

namespace millrace {
namespace {

constexpr size_t kMaxBlocks = 8192;

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

// Number of the block that a tensor "blk.7.attn_q.weight" belongs to, if it ends in `suffix` after
// that ("attn_q.weight").
std::optional<size_t> block_of(std::string_view name, std::string_view suffix) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  size_t block = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), block);
  // More blocks than any model has would be memory for nothing.
  if (error != std::errc() || block >= kMaxBlocks) return std::nullopt;
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  if (!name.starts_with('.') || name.substr(1) != suffix) return std::nullopt;
  return block;
}

// By block, 1 if it has the tensor; up to the last block that has any tensor.
std::vector<uint8_t> blocks_with(const Gguf& gguf, std::string_view suffix) {
  std::vector<uint8_t> has;
  for (const auto& [name, tensor] : gguf.tensors()) {
    const auto any = block_of(name, "attn_norm.weight");
    const auto block = block_of(name, suffix);
    if (const auto last = std::max(any, block); last && *last >= has.size()) has.resize(*last + 1);
    if (block) has[*block] = 1;
  }
  return has;
}

Result<ModelConfig> config_of(const Gguf& gguf) {
  GgufTensorFacts facts;
  MR_ASSIGN(facts.rope_freqs, read_rope_freqs(gguf));
  facts.has_output = gguf.find("output.weight") != nullptr;
  facts.has_q_bias = gguf.find("blk.0.attn_q.bias") != nullptr;
  facts.has_o_bias = gguf.find("blk.0.attn_output.bias") != nullptr;
  facts.has_mlp_bias = gguf.find("blk.0.ffn_down.bias") != nullptr;
  facts.has_qk_norm = gguf.find("blk.0.attn_q_norm.weight") != nullptr;
  facts.has_router = blocks_with(gguf, "ffn_gate_inp.weight");
  facts.has_indexer = blocks_with(gguf, "indexer.attn_k.weight");
  const std::vector<uint8_t> biased = blocks_with(gguf, "exp_probs_b.bias");
  facts.has_expert_bias = std::ranges::find(biased, 1) != biased.end();
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
