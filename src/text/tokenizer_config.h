// What tokenizer_config.json says beside the tokenizer: special tokens, BOS, chat templates.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace millrace {

struct TokenizerConfig {
  // bos_token, eos_token, ... as templates see them: name -> text, or a list of texts
  // (additional_special_tokens). Names without a token are absent.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();
  std::optional<bool> add_bos_token;
  // By name; a template without a name is "default".
  std::map<std::string, std::string> chat_templates;

  // The text of a special token such as "eos_token", if there is one.
  std::optional<std::string> special_token(std::string_view name) const;
};

// `json`: contents of tokenizer_config.json. Tokens may be strings or AddedToken objects. Errors
// name the field.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json);

}  // namespace millrace
