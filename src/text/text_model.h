// The text side of a model: tokenizer, chat templates, BOS and end tokens, from whatever form the
// model comes in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/gguf_metadata.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace millrace {

class TextModel {
 public:
  // `path`: a tokenizer.json (or tokenizer.json.gz), a Hugging Face folder, a file of weights in
  // one (.safetensors, .safetensors.index.json), a folder with one GGUF model, or a GGUF file.
  // Errors name the file that is missing or wrong.
  static Result<TextModel> open(const std::string& path);
  // From the metadata of a GGUF model that is open already.
  static Result<TextModel> from_gguf(const GgufMetadata& metadata);
  // From file contents. `config` may be empty.
  static Result<TextModel> from_json(std::string_view tokenizer_json,
                                     const TokenizerConfig& config);

  const Tokenizer& tokenizer() const { return tokenizer_; }

  // What the tokenizer was made from: the name of its file, or a GGUF file's "gpt2/llama-bpe".
  // Empty after from_json().
  const std::string& source() const { return source_; }

  // True if chat_template() finds one for chats without tools; it need not compile.
  bool has_chat_template() const { return chat_templates_.contains("default"); }
  // The template for a chat with or without tools. Error: the model has none, or it does not
  // compile.
  Result<ChatTemplate> chat_template(bool with_tools = false) const;
  // Replaces the model's templates (--chat-template).
  void set_chat_template(std::string source);

  // A plain prompt: control tokens in it are recognised; BOS comes first exactly once if the model
  // wants one, also when the text already begins with it. Chats are encoded by ChatTemplate.
  Result<std::vector<int32_t>> encode_prompt(std::string_view text) const;

  // All end tokens that the model declares, ascending: eos of the tokenizer, the lists of
  // config.json and generation_config.json, GGUF's eos, eot and eom. Generation stops on any.
  const std::vector<int32_t>& end_ids() const { return end_ids_; }

 private:
  explicit TextModel(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  static Result<TextModel> open_folder(const std::string& folder);
  static Result<TextModel> open_tokenizer_json(const std::string& file, const std::string& folder);
  Result<> read_bos(const TokenizerConfig& config);
  Result<> read_gguf_special_tokens(const GgufMetadata& metadata);
  void add_end_id(int64_t id);

  Tokenizer tokenizer_;
  std::string source_;
  nlohmann::ordered_json special_tokens_ = nlohmann::ordered_json::object();
  std::map<std::string, std::string> chat_templates_;
  std::optional<int32_t> bos_id_;
  bool adds_bos_ = false;
  std::vector<int32_t> end_ids_;
};

}  // namespace millrace
