#include "config/hf_rope.h"

#include <string>

#include "base/describe_json.h"
#include "config/model_rules.h"

namespace millrace {
namespace {

constexpr double kDefaultTheta = 10000.0;
constexpr Range<double> kThetaRange{kLeastRopeTheta, 1e12};
constexpr Range<double> kFactorRange{1.0, 1e4};
constexpr Range<double> kPositive{1e-6, 1e6};
constexpr Range<int64_t> kPositionRange{1, int64_t{1} << 30};

Result<RopeType> parse_type(JsonFields& dict) {
  MR_ASSIGN(const auto current, dict.find_string("rope_type"));
  MR_ASSIGN(const auto older, dict.find_string("type"));
  const std::string name = current.value_or(older.value_or("default"));
  for (const auto type :
       {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kYarn}) {
    if (name == name_of(type)) return type;
  }
  return fail("field rope_type: found \"{}\", expected default, linear, llama3 or yarn",
              one_short_line(name));
}

Result<double> required(const std::optional<double>& value, const char* name, RopeType type) {
  if (value) return *value;
  return fail("field {}: missing, expected a number, as rope_type is {}", name, name_of(type));
}

Result<> parse_llama3(JsonFields& dict, RopeConfig& rope) {
  MR_ASSIGN(const auto low, dict.find_number("low_freq_factor", kPositive));
  MR_ASSIGN(const auto high, dict.find_number("high_freq_factor", kPositive));
  if (rope.type != RopeType::kLlama3) return {};
  MR_ASSIGN(rope.low_freq_factor, required(low, "low_freq_factor", rope.type));
  MR_ASSIGN(rope.high_freq_factor, required(high, "high_freq_factor", rope.type));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return fail("field high_freq_factor: found {}, expected more than low_freq_factor {}",
                rope.high_freq_factor, rope.low_freq_factor);
  }
  return {};
}

Result<> parse_yarn(JsonFields& dict, HfRope& out) {
  RopeConfig& rope = out.rope;
  MR_ASSIGN(const auto attention_factor, dict.find_number("attention_factor", kPositive));
  MR_ASSIGN(const auto beta_fast, dict.find_number("beta_fast", kPositive));
  MR_ASSIGN(const auto beta_slow, dict.find_number("beta_slow", kPositive));
  MR_ASSIGN(const auto mscale, dict.find_number("mscale", {0, 1e3}));
  MR_ASSIGN(const auto mscale_all_dim, dict.find_number("mscale_all_dim", {0, 1e3}));
  MR_ASSIGN(const auto truncate, dict.find_bool("truncate"));
  if (rope.type != RopeType::kDefault) {
    const double m = yarn_mscale(rope.factor, mscale_all_dim.value_or(0));
    out.softmax_factor = m * m;
  }
  if (rope.type != RopeType::kYarn) return {};
  rope.beta_fast = beta_fast.value_or(rope.beta_fast);
  rope.beta_slow = beta_slow.value_or(rope.beta_slow);
  rope.truncate = truncate.value_or(true);
  if (rope.beta_fast < rope.beta_slow) {
    return fail("field beta_fast: found {}, expected at least beta_slow {}", rope.beta_fast,
                rope.beta_slow);
  }
  rope.attention_factor = attention_factor.value_or(
      yarn_attention_factor(rope.factor, mscale.value_or(0), mscale_all_dim.value_or(0)));
  return {};
}

// The dict of RoPE parameters under either name, or an empty object.
Result<const nlohmann::json*> find_dict(JsonFields& fields, std::string& name) {
  static const nlohmann::json kNone = nlohmann::json::object();
  const nlohmann::json* current = fields.find("rope_parameters");
  const nlohmann::json* older = fields.find("rope_scaling");
  if (current != nullptr && older != nullptr && *current != *older) {
    return fail("fields rope_parameters and rope_scaling: both are there and differ, expected one");
  }
  name = current != nullptr ? "rope_parameters" : "rope_scaling";
  const nlohmann::json* dict = current != nullptr ? current : older;
  if (dict == nullptr) return &kNone;
  if (!dict->is_object()) return fields.wrong(name, *dict, "an object");
  return dict;
}

}  // namespace

Result<HfRope> parse_hf_rope(JsonFields& fields, const HfRopeSpec& spec) {
  std::string dict_name;
  MR_ASSIGN(const nlohmann::json* object, find_dict(fields, dict_name));
  JsonFields dict(*object, dict_name + ".");
  HfRope out;
  RopeConfig& rope = out.rope;
  MR_ASSIGN(rope.type, parse_type(dict));

  MR_ASSIGN(const auto theta, dict.find_number("rope_theta", kThetaRange));
  MR_ASSIGN(const auto top_theta, fields.find_number("rope_theta", kThetaRange));
  rope.theta = theta.value_or(top_theta.value_or(kDefaultTheta));

  MR_ASSIGN(const auto partial, dict.find_number("partial_rotary_factor", {0, 1}));
  MR_ASSIGN(const auto top_partial, fields.find_number("partial_rotary_factor", {0, 1}));
  const double share = partial.value_or(top_partial.value_or(spec.default_partial));
  if (share != 1.0 && !spec.may_be_partial) {
    return fail("field partial_rotary_factor: found {}, expected 1 for this architecture", share);
  }
  rope.rotary_dim = static_cast<int>(spec.head_dim * share);

  MR_ASSIGN(const auto factor, dict.find_number("factor", kFactorRange));
  if (rope.type != RopeType::kDefault) {
    MR_ASSIGN(rope.factor, required(factor, "factor", rope.type));
  }
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  MR_ASSIGN(const auto original, dict.find_int(kOriginal, kPositionRange));
  MR_ASSIGN(const auto top_original, fields.find_int(kOriginal, kPositionRange));
  rope.original_max_position =
      original.value_or(top_original.value_or(spec.max_position_embeddings));

  MR_TRY(parse_llama3(dict, rope));
  MR_TRY(parse_yarn(dict, out));
  // What training scripts note beside the parameters.
  constexpr std::string_view kHarmless[] = {"finetuned", "max_position_embeddings"};
  dict.ignore(kHarmless);
  MR_TRY(dict.check_rest({}));
  return out;
}

}  // namespace millrace
