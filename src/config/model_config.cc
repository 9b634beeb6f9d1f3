#include "config/model_config.h"

#include <cmath>
#include <span>

#include "base/check.h"

namespace millrace {
namespace {

constexpr int64_t kMaxHidden = int64_t{1} << 20;
constexpr int64_t kMaxIntermediate = int64_t{1} << 22;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
// Matrices of one kind in all layers (experts, heads): each is listed.
constexpr int64_t kMaxMatrices = int64_t{1} << 20;
// Elements of all experts' matrices of one kind, so that their bytes stay a number.
constexpr int64_t kMaxExpertElements = int64_t{1} << 52;

struct Bounded {
  const char* name;
  int64_t value;
  int64_t most;
};

Result<> check_sizes(std::span<const Bounded> sizes) {
  for (const Bounded& size : sizes) {
    if (size.value < 1 || size.value > size.most) {
      return fail("{}: found {}, expected 1 to {}", size.name, size.value, size.most);
    }
  }
  return {};
}

Result<> validate_mla(const ModelConfig& config) {
  const MlaConfig& mla = *config.mla;
  const Bounded sizes[] = {{"kv_lora_rank", mla.kv_lora_rank, 65536},
                           {"qk_nope_head_dim", mla.qk_nope_head_dim, 1024},
                           {"qk_rope_head_dim", mla.qk_rope_head_dim, 1024},
                           {"v_head_dim", mla.v_head_dim, 1024}};
  MR_TRY(check_sizes(sizes));
  if (mla.q_lora_rank < 0 || mla.q_lora_rank > 65536) {
    return fail("q_lora_rank: found {}, expected 0 to 65536", mla.q_lora_rank);
  }
  if (config.head_dim != mla.qk_head_dim() || config.num_kv_heads != config.num_heads ||
      config.rope.rotary_dim != mla.qk_rope_head_dim) {
    return fail(
        "latent attention: found head_dim {}, {} KV heads and {} rotary dimensions, expected {}, "
        "{} and {}",
        config.head_dim, config.num_kv_heads, config.rope.rotary_dim, mla.qk_head_dim(),
        config.num_heads, mla.qk_rope_head_dim);
  }
  if (config.qkv_bias || config.o_bias) {
    return fail("biases in latent attention are not supported");
  }
  if (!(mla.softmax_scale > 0 && std::isfinite(mla.softmax_scale))) {
    return fail("softmax scale: found {}, expected a number above 0", mla.softmax_scale);
  }
  if (int64_t{config.num_heads} * mla.v_head_dim > kMaxHidden) {
    return fail("{} heads of {} values: expected at most {} in all", config.num_heads,
                mla.v_head_dim, kMaxHidden);
  }
  if (int64_t{config.num_heads} * config.num_layers > kMaxMatrices) {
    return fail("{} heads in each of {} layers: expected at most {} in all", config.num_heads,
                config.num_layers, kMaxMatrices);
  }
  return {};
}

Result<> validate_indexer(const ModelConfig& config) {
  const IndexerConfig& indexer = *config.indexer;
  if (!config.mla || config.mla->q_lora_rank == 0) {
    return fail("an indexer needs latent attention with q_lora_rank");
  }
  const Bounded sizes[] = {{"index_n_heads", indexer.num_heads, 1024},
                           {"index_head_dim", indexer.head_dim, 1024},
                           {"index_topk", indexer.topk, int64_t{1} << 20}};
  MR_TRY(check_sizes(sizes));
  if (indexer.head_dim < config.mla->qk_rope_head_dim || indexer.head_dim % 4 != 0) {
    return fail("index_head_dim: found {}, expected a multiple of 4 from {} (qk_rope_head_dim)",
                indexer.head_dim, config.mla->qk_rope_head_dim);
  }
  if (indexer.is_full.size() != static_cast<size_t>(config.num_layers)) {
    return fail("indexer types: found {} layers, expected {}", indexer.is_full.size(),
                config.num_layers);
  }
  if (indexer.is_full.front() == 0) {
    return fail("indexer types: found a first layer that shares, expected one with an indexer");
  }
  return {};
}

Result<> validate_moe(const ModelConfig& config) {
  const MoeConfig& moe = *config.moe;
  const Bounded sizes[] = {{"number of experts", moe.num_experts, 65536},
                           {"experts per token", moe.experts_per_token, moe.num_experts},
                           {"expert intermediate size", moe.intermediate_size, kMaxIntermediate},
                           {"expert groups", moe.num_groups, moe.num_experts},
                           {"chosen expert groups", moe.topk_groups, moe.num_groups}};
  MR_TRY(check_sizes(sizes));
  if (moe.shared_intermediate_size < 0 || moe.shared_intermediate_size > kMaxIntermediate) {
    return fail("shared expert intermediate size: found {}, expected 0 to {}",
                moe.shared_intermediate_size, kMaxIntermediate);
  }
  const int64_t all_experts = int64_t{moe.num_experts} * config.num_layers;
  const int64_t expert_size = int64_t{moe.intermediate_size} * config.hidden_size;
  if (all_experts > kMaxMatrices || expert_size > kMaxExpertElements / all_experts) {
    return fail(
        "{} experts in each of {} layers, {} columns wide: expected at most {} experts in all, of "
        "2^52 weights together",
        moe.num_experts, config.num_layers, moe.intermediate_size, kMaxMatrices);
  }
  if (moe.num_experts % moe.num_groups != 0) {
    return fail("expert groups: found {}, expected a divisor of the {} experts", moe.num_groups,
                moe.num_experts);
  }
  const int group_size = moe.num_experts / moe.num_groups;
  // A group is judged by its two best experts.
  if (moe.num_groups > 1 && group_size < 2) {
    return fail("expert groups: found {} of one expert each, expected at least two in a group",
                moe.num_groups);
  }
  if (moe.experts_per_token > moe.topk_groups * group_size) {
    return fail("experts per token: found {}, expected at most {} ({} groups of {})",
                moe.experts_per_token, moe.topk_groups * group_size, moe.topk_groups, group_size);
  }
  if (!(moe.routed_scaling_factor > 0 && std::isfinite(moe.routed_scaling_factor)) ||
      !(moe.norm_epsilon >= 0 && moe.norm_epsilon < 1)) {
    return fail("routed scaling factor: found {} (epsilon {}), expected a number above 0",
                moe.routed_scaling_factor, moe.norm_epsilon);
  }
  if (moe.is_sparse.size() != static_cast<size_t>(config.num_layers)) {
    return fail("MLP layer types: found {} layers, expected {}", moe.is_sparse.size(),
                config.num_layers);
  }
  return {};
}

}  // namespace

std::string_view name_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "LlamaForCausalLM";
    case Architecture::kQwen2:
      return "Qwen2ForCausalLM";
    case Architecture::kQwen3:
      return "Qwen3ForCausalLM";
    case Architecture::kQwen3Moe:
      return "Qwen3MoeForCausalLM";
    case Architecture::kGlm4Moe:
      return "Glm4MoeForCausalLM";
    case Architecture::kDeepseekV3:
      return "DeepseekV3ForCausalLM";
    case Architecture::kDeepseekV32:
      return "DeepseekV32ForCausalLM";
    case Architecture::kGlmMoeDsa:
      return "GlmMoeDsaForCausalLM";
  }
  MR_CHECK(false, "bad architecture");
}

bool has_mla(Architecture architecture) {
  return architecture == Architecture::kDeepseekV3 || has_indexer(architecture);
}

bool has_indexer(Architecture architecture) {
  return architecture == Architecture::kDeepseekV32 || architecture == Architecture::kGlmMoeDsa;
}

bool has_experts(Architecture architecture) {
  return has_mla(architecture) || architecture == Architecture::kQwen3Moe ||
         architecture == Architecture::kGlm4Moe;
}

std::string_view name_of(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
  }
  MR_CHECK(false, "bad rope type");
}

std::string_view name_of(QuantizationMethod method) {
  switch (method) {
    case QuantizationMethod::kBlockFp8:
      return "fp8";
    case QuantizationMethod::kGptq:
      return "gptq";
    case QuantizationMethod::kAwq:
      return "awq";
    case QuantizationMethod::kCompressedTensors:
      return "compressed-tensors";
  }
  MR_CHECK(false, "bad quantization method");
}

Result<> validate(const ModelConfig& config) {
  const Bounded sizes[] = {{"hidden size", config.hidden_size, kMaxHidden},
                           {"intermediate size", config.intermediate_size, kMaxIntermediate},
                           {"vocabulary size", config.vocab_size, kMaxVocab},
                           {"number of layers", config.num_layers, 4096},
                           {"number of heads", config.num_heads, 65536},
                           {"number of KV heads", config.num_kv_heads, 65536},
                           {"head_dim", config.head_dim, 1024},
                           {"context length", config.max_position_embeddings, kMaxPositions}};
  MR_TRY(check_sizes(sizes));
  if (config.num_heads % config.num_kv_heads != 0) {
    return fail("number of KV heads: found {}, expected a divisor of the {} heads",
                config.num_kv_heads, config.num_heads);
  }
  if (int64_t{config.num_heads} * config.head_dim > kMaxHidden) {
    return fail("{} heads of {} elements: expected at most {} in all", config.num_heads,
                config.head_dim, kMaxHidden);
  }
  if (!(config.rms_norm_eps > 0 && config.rms_norm_eps < 1)) {
    return fail("RMS norm epsilon: found {}, expected a number between 0 and 1",
                config.rms_norm_eps);
  }
  const RopeConfig& rope = config.rope;
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > config.head_dim) {
    return fail("rotary dimensions: found {}, expected an even number up to head_dim {}",
                rope.rotary_dim, config.head_dim);
  }
  if (config.mla) MR_TRY(validate_mla(config));
  if (config.indexer) MR_TRY(validate_indexer(config));
  if (config.moe) MR_TRY(validate_moe(config));
  for (const int64_t id : config.eos_token_ids) {
    if (id < 0 || id >= config.vocab_size) {
      return fail("end token: found {}, expected a token below {}", id, config.vocab_size);
    }
  }
  return {};
}

}  // namespace millrace
