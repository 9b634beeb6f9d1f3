// Mixtures of experts in config.json.
#include <algorithm>
#include <string>

#include "base/describe_json.h"
#include "config/hf_sparse.h"

namespace millrace {
namespace {

constexpr int64_t kMaxExperts = 65536;
constexpr int64_t kMaxLayers = 4096;
constexpr Range<int64_t> kWidthRange{1, int64_t{1} << 22};
constexpr float kSigmoidNormEpsilon = 1e-20f;

// Training, or how experts were spread over machines.
constexpr std::string_view kHarmless[] = {"ep_size", "aux_loss_alpha", "seq_aux",
                                          "router_aux_loss_coef", "output_router_logits"};

// The first of the names that is there: files and versions differ.
Result<int64_t> get_num_experts(JsonFields& fields) {
  std::optional<int64_t> found;
  std::string_view found_name;
  for (const auto name : {"n_routed_experts", "num_experts", "num_local_experts"}) {
    MR_ASSIGN(const auto value, fields.find_int(name, {1, kMaxExperts}));
    if (!value) continue;
    if (found && *found != *value) {
      return fail("field {}: found {}, expected {}, as {} says", name, *value, *found, found_name);
    }
    found = value;
    found_name = name;
  }
  if (found) return *found;
  return fields.missing("n_routed_experts",
                        fmt::format("an integer from 1 to {} (or as num_experts)", kMaxExperts));
}

// Fields that say which router it is must agree with the architecture's.
Result<> check_router(JsonFields& fields, const ModelConfig& config) {
  const bool sigmoid = config.moe->score == RouterScore::kSigmoid;
  const std::pair<std::string_view, std::string_view> table[] = {
      {"scoring_func", sigmoid ? "sigmoid" : "softmax"},
      {"topk_method", sigmoid ? "noaux_tc" : "greedy"},
      {"moe_router_dtype", "float32"}};
  for (const auto& [name, expected] : table) {
    MR_ASSIGN(const auto found, fields.find_string(name));
    if (found && *found != expected) {
      return fail("field {}: found \"{}\", expected \"{}\" for {}", name, one_short_line(*found),
                  expected, name_of(config.architecture));
    }
  }
  return {};
}

Result<std::vector<uint8_t>> parse_mlp_layer_types(JsonFields& fields, const nlohmann::json& types,
                                                   int num_layers) {
  if (!types.is_array() || types.size() != static_cast<size_t>(num_layers)) {
    return fields.wrong("mlp_layer_types", types, fmt::format("an array of {}", num_layers));
  }
  std::vector<uint8_t> is_sparse;
  for (const auto& type : types) {
    if (type != "sparse" && type != "dense") {
      return fields.wrong("mlp_layer_types", type, "\"dense\" or \"sparse\" in each layer");
    }
    is_sparse.push_back(type == "sparse");
  }
  return is_sparse;
}

// DeepSeek and GLM: the first layers are dense, then every moe_layer_freq-th layer is sparse.
Result<std::vector<uint8_t>> parse_sparse_after_dense(JsonFields& fields, int num_layers) {
  const nlohmann::json* types = fields.find("mlp_layer_types");
  MR_ASSIGN(const auto dense, fields.find_int("first_k_dense_replace", {0, kMaxLayers}));
  MR_ASSIGN(const auto freq, fields.find_int("moe_layer_freq", {1, kMaxLayers}));
  if (types != nullptr) return parse_mlp_layer_types(fields, *types, num_layers);
  if (!dense) {
    return fields.missing("first_k_dense_replace",
                          fmt::format("an integer from 0 to {} (or mlp_layer_types)", kMaxLayers));
  }
  std::vector<uint8_t> is_sparse(static_cast<size_t>(num_layers));
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    is_sparse[static_cast<size_t>(layer)] = layer >= *dense && layer % freq.value_or(1) == 0;
  }
  return is_sparse;
}

// Qwen3: every decoder_sparse_step-th layer is sparse, but for a list of dense ones.
Result<std::vector<uint8_t>> parse_sparse_steps(JsonFields& fields, int num_layers) {
  MR_ASSIGN(const auto step, fields.find_int("decoder_sparse_step", {1, kMaxLayers}));
  std::vector<uint8_t> is_sparse(static_cast<size_t>(num_layers));
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    is_sparse[static_cast<size_t>(layer)] = (layer + 1) % step.value_or(1) == 0;
  }
  const nlohmann::json* dense = fields.find("mlp_only_layers");
  if (dense == nullptr) return is_sparse;
  if (!dense->is_array()) return fields.wrong("mlp_only_layers", *dense, "an array of layers");
  for (const auto& layer : *dense) {
    const bool fits = layer.is_number_unsigned() && layer.get<uint64_t>() < is_sparse.size();
    if (!fits) {
      return fields.wrong("mlp_only_layers", layer, fmt::format("layers below {}", num_layers));
    }
    is_sparse[layer.get<size_t>()] = 0;
  }
  return is_sparse;
}

// The sigmoid router of DeepSeek-V3 and GLM: groups, shared experts, a factor.
Result<> parse_sigmoid_router(JsonFields& fields, MoeConfig& moe) {
  moe.score = RouterScore::kSigmoid;
  moe.correction_bias = true;
  moe.norm_epsilon = kSigmoidNormEpsilon;
  MR_ASSIGN(const int64_t groups, fields.get_int("n_group", {1, moe.num_experts}));
  if (moe.num_experts % groups != 0) {
    return fail("field n_group: found {}, expected a divisor of the {} experts", groups,
                moe.num_experts);
  }
  MR_ASSIGN(const int64_t topk_groups, fields.get_int("topk_group", {1, groups}));
  MR_ASSIGN(const double factor, fields.get_number("routed_scaling_factor", {1e-6, 1e6}));
  MR_ASSIGN(const auto shared, fields.get_int_or_null("n_shared_experts", {0, 1024}));
  const int64_t shared_width = shared.value_or(0) * moe.intermediate_size;
  if (shared_width > kWidthRange.most) {
    return fail("field n_shared_experts: found {}, expected at most {} columns together", *shared,
                kWidthRange.most);
  }
  moe.num_groups = static_cast<int>(groups);
  moe.topk_groups = static_cast<int>(topk_groups);
  moe.routed_scaling_factor = static_cast<float>(factor);
  moe.shared_intermediate_size = static_cast<int>(shared_width);
  return {};
}

}  // namespace

Result<> parse_hf_moe(JsonFields& fields, ModelConfig& config) {
  MoeConfig moe;
  MR_ASSIGN(const int64_t experts, get_num_experts(fields));
  MR_ASSIGN(const int64_t chosen, fields.get_int("num_experts_per_tok", {1, experts}));
  MR_ASSIGN(const int64_t width, fields.get_int("moe_intermediate_size", kWidthRange));
  MR_ASSIGN(moe.norm_topk_prob, fields.get_bool("norm_topk_prob"));
  moe.num_experts = static_cast<int>(experts);
  moe.experts_per_token = static_cast<int>(chosen);
  moe.intermediate_size = static_cast<int>(width);
  if (config.architecture == Architecture::kQwen3Moe) {
    moe.score = RouterScore::kSoftmax;
    MR_ASSIGN(moe.is_sparse, parse_sparse_steps(fields, config.num_layers));
  } else {
    MR_TRY(parse_sigmoid_router(fields, moe));
    MR_ASSIGN(moe.is_sparse, parse_sparse_after_dense(fields, config.num_layers));
  }
  config.moe = std::move(moe);
  MR_TRY(check_router(fields, config));
  MR_ASSIGN(const auto mtp, fields.find_int("num_nextn_predict_layers", {0, 64}));
  config.num_mtp_layers = static_cast<int>(mtp.value_or(0));
  fields.ignore(kHarmless);
  return {};
}

}  // namespace millrace
