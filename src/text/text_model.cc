#include "text/text_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "config/model_config.h"
#include "io/files.h"
#include "io/gguf.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/model_path.h"
#include "text/rust_text.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMaxUnpackedBytes = size_t{512} << 20;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// The contents of a file, unpacked if its name ends in .gz.
Result<std::string> read_text(const std::string& path) {
  MR_ASSIGN(const MappedFile file, MappedFile::open(path));
  if (!path.ends_with(".gz")) return std::string(text_of(file));
  RustText text;
  RustText error;
  if (mrt_gunzip(view_of(text_of(file)), kMaxUnpackedBytes, text.out(), error.out())) {
    return fail("{}: {}", path, error.str());
  }
  return text.str();
}

// The eos_token_id of config.json or generation_config.json: a number, a list, or nothing.
Result<std::vector<int64_t>> end_ids_in(const std::string& path) {
  if (!path_exists(path)) return std::vector<int64_t>{};
  MR_ASSIGN(const json config, read_json_file(path));
  const bool has_field = config.is_object() && config.contains("eos_token_id");
  auto ids = parse_eos_token_ids(has_field ? &config["eos_token_id"] : nullptr);
  if (!ids) return fail_in(path, ids.error());
  return ids;
}

// Chat templates in files of their own, which go before those of tokenizer_config.json.
Result<> read_template_files(const std::string& folder,
                             std::map<std::string, std::string>& templates) {
  const std::string jinja = folder + "/chat_template.jinja";
  if (path_exists(jinja)) {
    MR_ASSIGN(templates["default"], read_text(jinja));
    return {};
  }
  const std::string as_json = folder + "/chat_template.json";
  if (!templates.empty() || !path_exists(as_json)) return {};
  MR_ASSIGN(const json root, read_json_file(as_json));
  if (root.is_object() && root.contains("chat_template") && root["chat_template"].is_string()) {
    templates["default"] = root["chat_template"].get<std::string>();
  }
  return {};
}

struct GgufToken {
  const char* key;   // of its id
  const char* name;  // as templates call it
};
constexpr GgufToken kGgufTokens[] = {
    {"tokenizer.ggml.bos_token_id", "bos_token"},
    {"tokenizer.ggml.eos_token_id", "eos_token"},
    {"tokenizer.ggml.unknown_token_id", "unk_token"},
    {"tokenizer.ggml.seperator_token_id", "sep_token"},
    {"tokenizer.ggml.padding_token_id", "pad_token"},
};
constexpr const char* kGgufEndKeys[] = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

template <typename To, typename From>
std::vector<To> converted(const std::vector<From>& values) {
  std::vector<To> out;
  out.reserve(values.size());
  for (const From value : values) out.push_back(static_cast<To>(value));
  return out;
}

Result<Tokenizer> tokenizer_in(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  MR_ASSIGN(vocabulary.model, metadata.get_string("tokenizer.ggml.model"));
  MR_ASSIGN(const auto pre, metadata.find_string("tokenizer.ggml.pre"));
  vocabulary.pre = pre.value_or("");
  MR_ASSIGN(const auto* tokens, metadata.get_strings("tokenizer.ggml.tokens"));
  vocabulary.tokens = *tokens;
  if (metadata.contains("tokenizer.ggml.merges")) {
    MR_ASSIGN(const auto* merges, metadata.get_strings("tokenizer.ggml.merges"));
    vocabulary.merges = *merges;
  }
  std::vector<int32_t> types;
  if (metadata.contains("tokenizer.ggml.token_type")) {
    MR_ASSIGN(const auto values, metadata.get_ints("tokenizer.ggml.token_type"));
    types = converted<int32_t>(values);
    vocabulary.token_types = types;
  }
  std::vector<float> scores;
  if (metadata.contains("tokenizer.ggml.scores")) {
    MR_ASSIGN(const auto values, metadata.get_floats("tokenizer.ggml.scores"));
    scores = converted<float>(values);
    vocabulary.scores = scores;
  }
  MR_ASSIGN(const auto space, metadata.find_bool("tokenizer.ggml.add_space_prefix"));
  vocabulary.add_space_prefix = space.value_or(true);
  return Tokenizer::from_gguf(vocabulary);
}

}  // namespace

void TextModel::add_end_id(int64_t id) {
  if (id < 0 || id > INT32_MAX) return;
  const auto at = std::lower_bound(end_ids_.begin(), end_ids_.end(), static_cast<int32_t>(id));
  if (at == end_ids_.end() || *at != id) end_ids_.insert(at, static_cast<int32_t>(id));
}

Result<> TextModel::read_bos(const TokenizerConfig& config) {
  if (const auto bos = config.special_token("bos_token")) bos_id_ = tokenizer_.token_id(*bos);
  // The post-processor of a tokenizer.json may put BOS in front, whatever the configuration says.
  MR_ASSIGN(const auto plain, tokenizer_.encode("a"));
  MR_ASSIGN(const auto processed, tokenizer_.encode("a", {.add_special_tokens = true}));
  // A hostile one may also leave nothing of the text.
  const bool adds_front =
      !processed.empty() && !plain.empty() && processed.front() != plain.front();
  if (adds_front) {
    if (!bos_id_) bos_id_ = processed.front();
    adds_bos_ = *bos_id_ == processed.front();
  }
  if (config.add_bos_token.value_or(false) && bos_id_) adds_bos_ = true;
  return {};
}

Result<TextModel> TextModel::from_json(std::string_view tokenizer_json,
                                       const TokenizerConfig& config) {
  MR_ASSIGN(Tokenizer tokenizer, Tokenizer::from_json(tokenizer_json));
  TextModel model(std::move(tokenizer));
  model.special_tokens_ = config.special_tokens;
  model.chat_templates_ = config.chat_templates;
  MR_TRY(model.read_bos(config));
  if (const auto eos = config.special_token("eos_token")) {
    if (const auto id = model.tokenizer_.token_id(*eos)) model.add_end_id(*id);
  }
  return model;
}

Result<> TextModel::read_gguf_special_tokens(const GgufMetadata& metadata) {
  for (const auto& [key, name] : kGgufTokens) {
    MR_ASSIGN(const auto id, metadata.find_int(key));
    if (!id || *id < 0 || *id > INT32_MAX) continue;
    const std::string piece = tokenizer_.piece(static_cast<int32_t>(*id));
    if (piece.empty()) {
      return fail("{} is {}, which is no token: the vocabulary has {}", key, *id,
                  tokenizer_.vocabulary_size());
    }
    special_tokens_[name] = piece;
  }
  for (const char* key : kGgufEndKeys) {
    MR_ASSIGN(const auto id, metadata.find_int(key));
    if (id) add_end_id(*id);
  }
  MR_ASSIGN(const auto bos, metadata.find_int("tokenizer.ggml.bos_token_id"));
  if (bos && *bos >= 0 && *bos <= INT32_MAX) bos_id_ = static_cast<int32_t>(*bos);
  return {};
}

Result<TextModel> TextModel::from_gguf(const GgufMetadata& metadata) {
  MR_ASSIGN(Tokenizer tokenizer, tokenizer_in(metadata));
  TextModel model(std::move(tokenizer));
  MR_TRY(model.read_gguf_special_tokens(metadata));

  MR_ASSIGN(const auto flag, metadata.find_bool("tokenizer.ggml.add_bos_token"));
  MR_ASSIGN(const auto pre, metadata.find_string("tokenizer.ggml.pre"));
  MR_ASSIGN(const std::string kind, metadata.get_string("tokenizer.ggml.model"));
  // Files that say nothing: these two families were trained with BOS.
  const bool usual = kind == "llama" || pre.value_or("") == "llama-bpe";
  model.source_ = pre ? kind + "/" + *pre : kind;
  model.adds_bos_ = flag.value_or(usual) && model.bos_id_;

  constexpr std::string_view kPrefix = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.values()) {
    const auto* source = std::get_if<std::string>(&value);
    if (!source || !key.starts_with(kPrefix)) continue;
    const std::string name = key.substr(kPrefix.size());
    if (name.empty()) model.chat_templates_["default"] = *source;
    if (name.starts_with('.')) model.chat_templates_[name.substr(1)] = *source;
  }
  return model;
}

Result<TextModel> TextModel::open_tokenizer_json(const std::string& file,
                                                 const std::string& folder) {
  TokenizerConfig config;
  const std::string config_file = folder + "/tokenizer_config.json";
  if (path_exists(config_file)) {
    MR_ASSIGN(const std::string text, read_text(config_file));
    auto parsed = parse_tokenizer_config(text);
    if (!parsed) return fail_in(config_file, parsed.error());
    config = std::move(*parsed);
  }
  MR_TRY(read_template_files(folder, config.chat_templates));
  MR_ASSIGN(const std::string text, read_text(file));
  auto model = from_json(text, config);
  if (!model) return fail_in(file, model.error());
  model->source_ = fs::path(file).filename().string();
  for (const char* name : {"config.json", "generation_config.json"}) {
    MR_ASSIGN(const auto ids, end_ids_in(folder + "/" + name));
    for (const int64_t id : ids) model->add_end_id(id);
  }
  return model;
}

Result<TextModel> TextModel::open_folder(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.json.gz"}) {
    const std::string file = folder + "/" + name;
    if (path_exists(file)) return open_tokenizer_json(file, folder);
  }
  const auto gguf = find_gguf_in(folder);
  if (gguf) return open(*gguf);
  return fail(
      "{}: no tokenizer.json in this folder; a model's text side needs that file (or a GGUF "
      "model, which holds its own)",
      folder);
}

Result<TextModel> TextModel::open(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return open_folder(path);
  const std::string folder =
      fs::path(path).has_parent_path() ? fs::path(path).parent_path().string() : std::string(".");
  if (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json")) {
    return open_folder(folder);
  }
  if (path.ends_with(".json") || path.ends_with(".json.gz")) {
    return open_tokenizer_json(path, folder);
  }
  MR_ASSIGN(const Gguf gguf, Gguf::open(path));
  auto model = from_gguf(gguf.metadata());
  if (!model) return fail_in(path, model.error());
  return model;
}

Result<ChatTemplate> TextModel::chat_template(bool with_tools) const {
  auto found = chat_templates_.end();
  if (with_tools) found = chat_templates_.find("tool_use");
  if (found == chat_templates_.end()) found = chat_templates_.find("default");
  if (found == chat_templates_.end()) return fail("the model has no chat template");
  return ChatTemplate::compile(found->second, special_tokens_);
}

void TextModel::set_chat_template(std::string source) {
  chat_templates_.clear();
  chat_templates_["default"] = std::move(source);
}

Result<std::vector<int32_t>> TextModel::encode_prompt(std::string_view text) const {
  MR_ASSIGN(auto ids, tokenizer_.encode(text));
  if (adds_bos_ && (ids.empty() || ids.front() != *bos_id_)) ids.insert(ids.begin(), *bos_id_);
  return ids;
}

}  // namespace millrace
