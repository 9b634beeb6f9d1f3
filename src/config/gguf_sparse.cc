#include "config/gguf_sparse.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "config/model_rules.h"

namespace millrace {
namespace {

constexpr int kMaxExperts = 65536;
constexpr int kMaxWidth = 1 << 22;
constexpr float kSigmoidNormEpsilon = 1e-20f;

// Values of expert_gating_func.
constexpr int kGatingSoftmax = 1;
constexpr int kGatingSigmoid = 2;

constexpr std::string_view kExpertKeys[] = {
    "expert_feed_forward_length", "expert_shared_feed_forward_length",
    "expert_shared_count",        "expert_group_count",
    "expert_group_used_count",    "expert_weights_scale",
    "expert_weights_norm",        "expert_gating_func",
    "leading_dense_block_count",  "nextn_predict_layers"};
constexpr std::string_view kMlaKeys[] = {"attention.q_lora_rank", "attention.kv_lora_rank",
                                         "attention.key_length_mla", "attention.value_length_mla",
                                         "rope.scaling.yarn_log_multiplier"};
constexpr std::string_view kIndexerKeys[] = {
    "attention.indexer.head_count",      "attention.indexer.key_length",
    "attention.indexer.top_k",           "attention.indexer.types",
    "attention.indexer.top_k_frequency", "attention.indexer.skip_top_k_offset",
    "attention.layer_norm_epsilon"};

// GLM-5.2 came with this context length and with layers that share; files of it that do not say
// which were written before there was a key for that. Its schedule:
constexpr int64_t kSharingContext = 1048576;
constexpr int kSharingFrequency = 4;
constexpr int kSharingOffset = 3;

bool contains(std::span<const std::string_view> list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

// mscale_all_dim; 0 if there is none. The converters store a tenth of it, as a float32, so that the
// last digits are noise.
Result<double> mscale_all_dim(const ArchFields& fields) {
  constexpr std::string_view kName = "rope.scaling.yarn_log_multiplier";
  MR_ASSIGN(const auto stored, fields.metadata().find_float(fields.key(kName)));
  if (!stored) return 0.0;
  if (!(*stored >= 0 && *stored <= 100)) {
    return fields.out_of_range(kName, *stored, "a number from 0 to 100");
  }
  return std::round(*stored * 1e7) / 1e6;
}

// A key whose 0 says the same as 1.
Result<int> find_groups(const ArchFields& fields, std::string_view name) {
  MR_ASSIGN(const auto value, fields.find_count(name, kMaxExperts));
  return std::max(value.value_or(1), 1);
}

// The gating function of an architecture whose file does not say; 0: it must.
int default_gating(Architecture architecture) {
  if (architecture == Architecture::kDeepseekV32) return 0;
  const bool softmax =
      architecture == Architecture::kQwen3Moe || architecture == Architecture::kDeepseekV3;
  // Files of DeepSeek-V2, which has a softmax router, share their architecture with V3's.
  return softmax ? kGatingSoftmax : kGatingSigmoid;
}

Result<RouterScore> parse_score(const ArchFields& fields, Architecture architecture) {
  constexpr std::string_view kName = "expert_gating_func";
  MR_ASSIGN(const auto stored, fields.find_count(kName, 255));
  const bool may_be_softmax =
      architecture == Architecture::kQwen3Moe || architecture == Architecture::kDeepseekV3;
  const bool may_be_sigmoid = architecture != Architecture::kQwen3Moe;
  const int gating = stored.value_or(0) == 0 ? default_gating(architecture) : *stored;
  if (gating == kGatingSoftmax && may_be_softmax) return RouterScore::kSoftmax;
  if (gating == kGatingSigmoid && may_be_sigmoid) return RouterScore::kSigmoid;
  const std::string_view expected = !may_be_sigmoid  ? "1 (softmax)"
                                    : may_be_softmax ? "1 (softmax) or 2 (sigmoid)"
                                                     : "2 (sigmoid)";
  if (gating == 0) return fields.missing(kName, expected);
  return fields.out_of_range(kName, gating, expected);
}

Result<> parse_router(const ArchFields& fields, const GgufTensorFacts& facts, MoeConfig& moe) {
  moe.correction_bias = facts.has_expert_bias;
  moe.norm_epsilon = moe.score == RouterScore::kSigmoid ? kSigmoidNormEpsilon : 0.0f;
  MR_ASSIGN(moe.num_groups, find_groups(fields, "expert_group_count"));
  MR_ASSIGN(moe.topk_groups, find_groups(fields, "expert_group_used_count"));
  if (moe.score == RouterScore::kSoftmax && moe.num_groups > 1) {
    return fields.out_of_range("expert_group_count", moe.num_groups,
                               "1: groups are not supported with a softmax router");
  }
  MR_ASSIGN(const auto scale, fields.metadata().find_float(fields.key("expert_weights_scale")));
  if (scale && !(*scale >= 0 && *scale <= 1e6)) {
    return fields.out_of_range("expert_weights_scale", *scale, "a number from 0 to 1000000");
  }
  // 0 stands for none.
  moe.routed_scaling_factor = static_cast<float>(scale.value_or(0) == 0 ? 1.0 : *scale);
  return {};
}

// Which layers have experts. Qwen3's files do not say: there it is the layers that have a router.
Result<std::vector<uint8_t>> parse_is_sparse(const ArchFields& fields, const GgufTensorFacts& facts,
                                             const ModelConfig& config) {
  constexpr std::string_view kName = "leading_dense_block_count";
  MR_ASSIGN(const auto dense, fields.find_count(kName, config.num_layers));
  std::vector<uint8_t> is_sparse(static_cast<size_t>(config.num_layers), 1);
  std::fill_n(is_sparse.begin(), dense.value_or(0), 0);
  if (config.architecture != Architecture::kQwen3Moe) return is_sparse;
  for (size_t layer = 0; layer < is_sparse.size() && layer < facts.has_router.size(); ++layer) {
    is_sparse[layer] = facts.has_router[layer];
  }
  return is_sparse;
}

Result<> parse_widths(const ArchFields& fields, const ModelConfig& config, MoeConfig& moe) {
  MR_ASSIGN(const auto width, fields.find_count("expert_feed_forward_length", kMaxWidth));
  moe.intermediate_size = width.value_or(0);
  // Early files of Qwen3 leave it to be derived.
  if (!width && config.architecture == Architecture::kQwen3Moe) {
    moe.intermediate_size = config.intermediate_size / moe.experts_per_token;
  }
  if (moe.intermediate_size == 0) {
    if (!width) return fields.missing("expert_feed_forward_length", "an integer");
    return fields.out_of_range("expert_feed_forward_length", *width,
                               fmt::format("1 to {}", kMaxWidth));
  }
  MR_ASSIGN(const auto shared, fields.find_count("expert_shared_count", 1024));
  const int64_t shared_width = int64_t{shared.value_or(0)} * moe.intermediate_size;
  MR_ASSIGN(const auto stored, fields.find_count("expert_shared_feed_forward_length", kMaxWidth));
  if (shared_width > kMaxWidth || (stored && *stored != 0 && *stored != shared_width)) {
    return fields.out_of_range("expert_shared_count", shared.value_or(0),
                               stored ? fmt::format("a number of experts that have {} columns "
                                                    "together (expert_shared_feed_forward_length)",
                                                    *stored)
                                      : fmt::format("at most {} columns together", kMaxWidth));
  }
  moe.shared_intermediate_size = static_cast<int>(shared_width);
  return {};
}

// The values of attention.indexer.types, which may be booleans or integers; null if absent.
Result<std::vector<uint8_t>> find_types(const ArchFields& fields) {
  constexpr std::string_view kName = "attention.indexer.types";
  std::vector<uint8_t> types;
  const GgufValue* value = fields.metadata().find(fields.key(kName));
  if (value == nullptr) return types;
  const auto* array = std::get_if<GgufArray>(value);
  if (array != nullptr) {
    if (const auto* flags = std::get_if<std::vector<bool>>(&array->values)) {
      types.assign(flags->begin(), flags->end());
      return types;
    }
  }
  MR_ASSIGN(const auto numbers, fields.metadata().get_ints(fields.key(kName)));
  for (const int64_t number : numbers) {
    if (number != 0 && number != 1)
      return fields.out_of_range(kName, number, "0 or 1 in each place");
    types.push_back(number == 1);
  }
  return types;
}

Result<std::vector<uint8_t>> parse_is_full(const ArchFields& fields, const GgufTensorFacts& facts,
                                           const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.num_layers);
  MR_ASSIGN(std::vector<uint8_t> types, find_types(fields));
  MR_ASSIGN(const auto freq, fields.find_count("attention.indexer.top_k_frequency", 4096));
  MR_ASSIGN(const auto offset, fields.find_count("attention.indexer.skip_top_k_offset", 4096));
  if (fields.contains("attention.indexer.types")) {
    const size_t with_mtp = layers + static_cast<size_t>(config.num_mtp_layers);
    if (types.size() != layers && types.size() != with_mtp) {
      return fields.out_of_range("attention.indexer.types", fmt::format("{} layers", types.size()),
                                 fmt::format("{}", layers));
    }
    types.resize(layers);
    return types;
  }
  if (freq) {
    return indexer_schedule(config.num_layers, std::max(*freq, 1), offset.value_or(2));
  }
  if (config.architecture == Architecture::kDeepseekV32) return std::vector<uint8_t>(layers, 1);
  const size_t known = std::min(layers, facts.has_indexer.size());
  std::vector<uint8_t> present(facts.has_indexer.begin(),
                               facts.has_indexer.begin() + static_cast<ptrdiff_t>(known));
  if (known == layers && std::ranges::find(present, 0) != present.end()) return present;
  if (config.max_position_embeddings >= kSharingContext) {
    return indexer_schedule(config.num_layers, kSharingFrequency, kSharingOffset);
  }
  return std::vector<uint8_t>(layers, 1);
}

}  // namespace

bool is_sparse_gguf_key(std::string_view name, Architecture architecture) {
  return (has_experts(architecture) && contains(kExpertKeys, name)) ||
         (has_mla(architecture) && contains(kMlaKeys, name)) ||
         (has_indexer(architecture) && contains(kIndexerKeys, name));
}

Result<> parse_gguf_mla(const ArchFields& fields, ModelConfig& config) {
  MlaConfig mla;
  MR_ASSIGN(const auto q_rank, fields.find_size("attention.q_lora_rank"));
  if (!q_rank && config.architecture != Architecture::kDeepseekV3) {
    return fields.missing("attention.q_lora_rank", "an integer");
  }
  MR_ASSIGN(mla.kv_lora_rank, fields.get_size("attention.kv_lora_rank"));
  MR_ASSIGN(mla.qk_rope_head_dim, fields.get_size("rope.dimension_count"));
  MR_ASSIGN(const auto key, fields.find_size("attention.key_length_mla"));
  MR_ASSIGN(const auto value, fields.find_size("attention.value_length_mla"));
  MR_ASSIGN(const int key_length, fields.get_size("attention.key_length"));
  MR_ASSIGN(const int value_length, fields.get_size("attention.value_length"));
  if (key.has_value() != value.has_value()) {
    return fields.missing(key ? "attention.value_length_mla" : "attention.key_length_mla",
                          "an integer, as the other one is there");
  }
  // With heads' own lengths under "_mla", the plain keys are those of what is cached.
  if (key && (key_length != mla.row_size() || value_length != mla.kv_lora_rank)) {
    return fields.out_of_range(
        "attention.key_length", key_length,
        fmt::format("{} (kv_lora_rank + rope.dimension_count), and value_length {}", mla.row_size(),
                    mla.kv_lora_rank));
  }
  // Files from before the key-value matrix was split have the heads' lengths in the plain keys.
  const int head = key.value_or(key_length);
  if (head <= mla.qk_rope_head_dim) {
    return fields.out_of_range(
        key ? "attention.key_length_mla" : "attention.key_length", head,
        fmt::format("more than rope.dimension_count {}", mla.qk_rope_head_dim));
  }
  mla.q_lora_rank = q_rank.value_or(0);
  mla.qk_nope_head_dim = head - mla.qk_rope_head_dim;
  mla.v_head_dim = value.value_or(value_length);
  config.num_kv_heads = config.num_heads;
  config.head_dim = mla.qk_head_dim();
  config.mla = mla;
  return {};
}

Result<> take_off_gguf_mtp_layers(const ArchFields& fields, ModelConfig& config) {
  MR_ASSIGN(const auto mtp, fields.find_count("nextn_predict_layers", 64));
  config.num_mtp_layers = mtp.value_or(0);
  config.num_layers -= config.num_mtp_layers;
  if (config.num_layers >= 1) return {};
  return fields.out_of_range("nextn_predict_layers", config.num_mtp_layers,
                             "fewer than block_count");
}

Result<> parse_gguf_moe(const ArchFields& fields, const GgufTensorFacts& facts,
                        ModelConfig& config) {
  MoeConfig moe;
  MR_ASSIGN(moe.num_experts, fields.get_size("expert_count"));
  MR_ASSIGN(moe.experts_per_token, fields.get_size("expert_used_count"));
  MR_TRY(parse_widths(fields, config, moe));
  MR_ASSIGN(moe.score, parse_score(fields, config.architecture));
  MR_TRY(parse_router(fields, facts, moe));
  // Qwen3's files do not say; every model of it that was published normalises.
  MR_ASSIGN(const auto norm, fields.metadata().find_bool(fields.key("expert_weights_norm")));
  moe.norm_topk_prob = norm.value_or(config.architecture == Architecture::kQwen3Moe);
  MR_ASSIGN(moe.is_sparse, parse_is_sparse(fields, facts, config));
  config.moe = std::move(moe);
  return {};
}

Result<> parse_gguf_indexer(const ArchFields& fields, const GgufTensorFacts& facts,
                            ModelConfig& config) {
  IndexerConfig indexer;
  MR_ASSIGN(indexer.num_heads, fields.get_size("attention.indexer.head_count"));
  MR_ASSIGN(indexer.head_dim, fields.get_size("attention.indexer.key_length"));
  MR_ASSIGN(indexer.topk, fields.get_size("attention.indexer.top_k"));
  MR_ASSIGN(indexer.is_full, parse_is_full(fields, facts, config));
  // The norm of the indexer's keys has this epsilon in every implementation.
  MR_ASSIGN(const auto eps, fields.find_positive("attention.layer_norm_epsilon", 1));
  if (eps && std::abs(*eps - 1e-6) > 1e-9) {
    return fields.out_of_range("attention.layer_norm_epsilon", *eps, "1e-06");
  }
  if (config.architecture == Architecture::kDeepseekV32 &&
      std::ranges::find(indexer.is_full, 0) != indexer.is_full.end()) {
    return fields.out_of_range("attention.indexer.types", "layers that share", "1 in each place");
  }
  indexer.interleaved = config.architecture == Architecture::kGlmMoeDsa;
  config.indexer = std::move(indexer);
  return {};
}

Result<> apply_gguf_mscale(const ArchFields& fields, Architecture architecture, RopeConfig& rope) {
  if (rope.attention_factor != yarn_attention_factor(rope.factor, 0, 0)) {
    return fail(
        "metadata {}: found a factor other than 1, expected none in latent attention, where it is "
        "not clear what it multiplies",
        fields.key("rope.scaling.yarn_attn_factor"));
  }
  MR_ASSIGN(const double all_dim, mscale_all_dim(fields));
  // mscale is not stored. DeepSeek-V2's files have the same value for both, later ones have 1.
  const double mscale = architecture == Architecture::kDeepseekV3 && all_dim != 1 ? all_dim : 1.0;
  rope.attention_factor = yarn_attention_factor(rope.factor, mscale, all_dim);
  return {};
}

Result<> set_gguf_softmax_scale(const ArchFields& fields, ModelConfig& config) {
  MlaConfig& mla = *config.mla;
  MR_ASSIGN(const double all_dim, mscale_all_dim(fields));
  const double m =
      config.rope.type == RopeType::kDefault ? 1.0 : yarn_mscale(config.rope.factor, all_dim);
  mla.softmax_scale = mla_softmax_scale(mla, m * m);
  return {};
}

}  // namespace millrace
