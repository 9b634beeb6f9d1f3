#include "config/model_config.h"

#include "base/check.h"

namespace millrace {
namespace {

constexpr int64_t kMaxHidden = int64_t{1} << 20;
constexpr int64_t kMaxIntermediate = int64_t{1} << 22;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

struct Bounded {
  const char* name;
  int64_t value;
  int64_t most;
};

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

Result<> validate(const ModelConfig& config) {
  const Bounded sizes[] = {{"hidden size", config.hidden_size, kMaxHidden},
                           {"intermediate size", config.intermediate_size, kMaxIntermediate},
                           {"vocabulary size", config.vocab_size, kMaxVocab},
                           {"number of layers", config.num_layers, 4096},
                           {"number of heads", config.num_heads, 65536},
                           {"number of KV heads", config.num_kv_heads, 65536},
                           {"head_dim", config.head_dim, 1024},
                           {"context length", config.max_position_embeddings, kMaxPositions}};
  for (const Bounded& size : sizes) {
    if (size.value < 1 || size.value > size.most) {
      return fail("{}: found {}, expected 1 to {}", size.name, size.value, size.most);
    }
  }
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
  for (const int64_t id : config.eos_token_ids) {
    if (id < 0 || id >= config.vocab_size) {
      return fail("end token: found {}, expected a token below {}", id, config.vocab_size);
    }
  }
  return {};
}

}  // namespace millrace
