// Latent attention and its indexer in config.json.
#include <algorithm>
#include <string>

#include "base/describe_json.h"
#include "config/hf_sparse.h"
#include "config/model_rules.h"

namespace millrace {
namespace {

constexpr Range<int64_t> kRankRange{1, 65536};
constexpr Range<int64_t> kHeadRange{1, 1024};

// The head's length is a sum here; `head_dim` means different things in different files, and no
// implementation reads it.
constexpr std::string_view kHarmless[] = {"head_dim"};

Result<> check_same(JsonFields& fields, std::string_view name, int64_t expected,
                    std::string_view what) {
  MR_ASSIGN(const auto found, fields.find_int(name, {1, int64_t{1} << 24}));
  if (!found || *found == expected) return {};
  return fail("field {}: found {}, expected {} ({})", name, *found, expected, what);
}

// "full" and "shared" by layer, or "F" and "S"; a string has a letter for each layer.
Result<std::vector<uint8_t>> parse_types(JsonFields& fields, std::string_view name,
                                         const nlohmann::json& value, int num_layers) {
  std::vector<uint8_t> is_full;
  const auto expected = fmt::format("{} of \"full\" or \"shared\", one a layer", num_layers);
  if (value.is_string()) {
    for (const char letter : value.get_ref<const std::string&>()) {
      if (letter != 'F' && letter != 'S') {
        return fields.wrong(name, value, fmt::format("{} letters F or S", num_layers));
      }
      is_full.push_back(letter == 'F');
    }
  } else if (value.is_array()) {
    for (const auto& type : value) {
      const bool full = type == "full" || type == "F";
      if (!full && type != "shared" && type != "S") return fields.wrong(name, type, expected);
      is_full.push_back(full);
    }
  } else {
    return fields.wrong(name, value, expected);
  }
  if (is_full.size() != static_cast<size_t>(num_layers)) {
    return fail("field {}: found {} layers, expected {}", name, is_full.size(), num_layers);
  }
  return is_full;
}

// The layers that have an indexer. The list wins over the pattern, and that over the frequency;
// what loses must be well formed all the same.
Result<std::vector<uint8_t>> parse_is_full(JsonFields& fields, int num_layers) {
  const nlohmann::json* types = fields.find("indexer_types");
  const nlohmann::json* pattern = fields.find("index_topk_pattern");
  MR_ASSIGN(const auto freq, fields.find_int("index_topk_freq", {1, 4096}));
  MR_ASSIGN(const auto offset, fields.find_int("index_skip_topk_offset", {0, 4096}));
  std::vector<uint8_t> is_full;
  if (pattern != nullptr) {
    MR_ASSIGN(is_full, parse_types(fields, "index_topk_pattern", *pattern, num_layers));
  }
  if (types != nullptr) {
    MR_ASSIGN(is_full, parse_types(fields, "indexer_types", *types, num_layers));
  }
  if (!is_full.empty()) return is_full;
  return indexer_schedule(num_layers, freq.value_or(1), offset.value_or(2));
}

}  // namespace

Result<> parse_hf_mla(JsonFields& fields, ModelConfig& config) {
  MlaConfig mla;
  MR_ASSIGN(const auto q_rank, fields.get_int_or_null("q_lora_rank", kRankRange));
  if (!q_rank && config.architecture != Architecture::kDeepseekV3) {
    return fail("field q_lora_rank: found null, expected an integer for {}",
                name_of(config.architecture));
  }
  MR_ASSIGN(const int64_t kv_rank, fields.get_int("kv_lora_rank", kRankRange));
  MR_ASSIGN(const int64_t nope, fields.get_int("qk_nope_head_dim", kHeadRange));
  MR_ASSIGN(const int64_t rope, fields.get_int("qk_rope_head_dim", kHeadRange));
  MR_ASSIGN(const int64_t value, fields.get_int("v_head_dim", kHeadRange));
  if (rope % 2 != 0) return fail("field qk_rope_head_dim: found {}, expected an even number", rope);
  MR_TRY(check_same(fields, "qk_head_dim", nope + rope, "qk_nope_head_dim + qk_rope_head_dim"));
  MR_TRY(check_same(fields, "num_key_value_heads", config.num_heads,
                    "num_attention_heads, as heads share a latent"));
  fields.ignore(kHarmless);
  MR_ASSIGN(const auto bias, fields.find_bool("attention_bias"));
  if (bias.value_or(false)) {
    return fail("field attention_bias: found true, expected false for {}",
                name_of(config.architecture));
  }
  mla.q_lora_rank = static_cast<int>(q_rank.value_or(0));
  mla.kv_lora_rank = static_cast<int>(kv_rank);
  mla.qk_nope_head_dim = static_cast<int>(nope);
  mla.qk_rope_head_dim = static_cast<int>(rope);
  mla.v_head_dim = static_cast<int>(value);
  config.num_kv_heads = config.num_heads;
  config.head_dim = mla.qk_head_dim();
  config.mla = mla;
  return {};
}

Result<> apply_hf_rope(JsonFields& fields, const HfRope& rope, ModelConfig& config) {
  config.rope = rope.rope;
  if (!config.mla) return {};
  MR_ASSIGN(const auto interleave, fields.find_bool("rope_interleave"));
  config.rope.interleaved = interleave.value_or(true);
  if (!config.rope.interleaved && config.architecture != Architecture::kDeepseekV3) {
    return fail("field rope_interleave: found false, expected true for {}",
                name_of(config.architecture));
  }
  config.mla->softmax_scale = mla_softmax_scale(*config.mla, rope.softmax_factor);
  return {};
}

Result<> parse_hf_indexer(JsonFields& fields, ModelConfig& config) {
  IndexerConfig indexer;
  MR_ASSIGN(const int64_t heads, fields.get_int("index_n_heads", {1, 1024}));
  MR_ASSIGN(const int64_t head_dim, fields.get_int("index_head_dim", kHeadRange));
  MR_ASSIGN(const int64_t topk, fields.get_int("index_topk", {1, int64_t{1} << 20}));
  if (head_dim < config.mla->qk_rope_head_dim) {
    return fail("field index_head_dim: found {}, expected at least qk_rope_head_dim {}", head_dim,
                config.mla->qk_rope_head_dim);
  }
  MR_ASSIGN(const auto interleave, fields.find_bool("indexer_rope_interleave"));
  MR_ASSIGN(indexer.is_full, parse_is_full(fields, config.num_layers));
  if (indexer.is_full.front() == 0) {
    return fail(
        "field indexer_types: found \"shared\" for the first layer, expected \"full\": there is no "
        "layer before it whose selection it could take (index_topk_pattern or "
        "index_skip_topk_offset may say so too)");
  }
  if (config.architecture == Architecture::kDeepseekV32 &&
      std::ranges::find(indexer.is_full, 0) != indexer.is_full.end()) {
    return fail("field indexer_types: found \"shared\" layers, expected \"full\" for {}",
                name_of(config.architecture));
  }
  // How further tokens are drafted by MTP layers, which do not run here.
  constexpr std::string_view kDrafting[] = {"index_share_for_mtp_iteration"};
  fields.ignore(kDrafting);
  indexer.num_heads = static_cast<int>(heads);
  indexer.head_dim = static_cast<int>(head_dim);
  indexer.topk = static_cast<int>(topk);
  indexer.interleaved = interleave.value_or(config.architecture == Architecture::kGlmMoeDsa);
  config.indexer = std::move(indexer);
  return {};
}

}  // namespace millrace
