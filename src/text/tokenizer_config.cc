#include "text/tokenizer_config.h"

#include "io/json.h"

namespace millrace {
namespace {

using nlohmann::json;

constexpr const char* kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

// A token is a string or an object with `content`; null is no token.
Result<std::optional<std::string>> token_text(const json& value, std::string_view field) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return fail("{} is a {}; expected a string, an object with \"content\", or null", field,
              value.type_name());
}

Result<> read_templates(const json& value, TokenizerConfig& config) {
  if (value.is_null()) return {};
  if (value.is_string()) {
    config.chat_templates["default"] = value.get<std::string>();
    return {};
  }
  const auto bad = [] {
    return fail(
        "chat_template must be a string or a list of objects with \"name\" and "
        "\"template\"");
  };
  if (!value.is_array()) return bad();
  for (const json& item : value) {
    const bool named = item.is_object() && item.contains("name") && item["name"].is_string() &&
                       item.contains("template") && item["template"].is_string();
    if (!named) return bad();
    config.chat_templates[item["name"].get<std::string>()] = item["template"].get<std::string>();
  }
  return {};
}

}  // namespace

std::optional<std::string> TokenizerConfig::special_token(std::string_view name) const {
  const auto found = special_tokens.find(std::string(name));
  if (found == special_tokens.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

Result<TokenizerConfig> parse_tokenizer_config(std::string_view text) {
  MR_ASSIGN(const json root, parse_json(text));
  if (!root.is_object()) return fail("a {} at the top; expected an object", root.type_name());
  TokenizerConfig config;
  for (const char* name : kTokenNames) {
    if (!root.contains(name)) continue;
    MR_ASSIGN(const auto token, token_text(root[name], name));
    if (token) config.special_tokens[name] = *token;
  }
  if (root.contains("additional_special_tokens") && root["additional_special_tokens"].is_array()) {
    auto tokens = nlohmann::ordered_json::array();
    for (const json& item : root["additional_special_tokens"]) {
      MR_ASSIGN(const auto token, token_text(item, "additional_special_tokens"));
      if (token) tokens.push_back(*token);
    }
    if (!tokens.empty()) config.special_tokens["additional_special_tokens"] = std::move(tokens);
  }
  if (root.contains("add_bos_token") && root["add_bos_token"].is_boolean()) {
    config.add_bos_token = root["add_bos_token"].get<bool>();
  }
  if (root.contains("chat_template")) MR_TRY(read_templates(root["chat_template"], config));
  return config;
}

}  // namespace millrace
