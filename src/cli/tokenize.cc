#include "cli/tokenize.h"

#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cli/jsonl.h"
#include "cli/output.h"
#include "io/model_path.h"
#include "text/text_model.h"
#include "text/utf8_stream.h"

namespace millrace {
namespace {

using nlohmann::ordered_json;

struct TokenizeOptions {
  std::string model;
  std::string text;
  bool has_text = false;
  std::string input;
  bool json = false;
  bool add_special_tokens = false;
  bool plain_special = false;
};

// The bytes of a token as text; bytes that are no whole character show as U+FFFD.
std::string shown_bytes(const Tokenizer& tokenizer, int32_t id) {
  Utf8Stream stream;
  std::string out = stream.push(tokenizer.token_bytes(id));
  return out + stream.flush();
}

// One row of golden data: its text encoded in three ways and decoded in two.
Result<> tokenize_row(const Tokenizer& tokenizer, const ordered_json& row) {
  MR_ASSIGN(const std::string text, text_field(row, "text"));
  ordered_json out;
  for (const char* key : {"tokenizer", "name"}) {
    if (row.contains(key)) out[key] = row[key];
  }
  MR_ASSIGN(const auto ids, tokenizer.encode(text));
  MR_ASSIGN(const auto special, tokenizer.encode(text, {.add_special_tokens = true}));
  MR_ASSIGN(const auto plain, tokenizer.encode(text, {.special_text = SpecialText::kPlain}));
  out["ids"] = ids;
  out["ids_special"] = special;
  out["ids_no_special"] = plain;
  MR_ASSIGN(out["decode"], tokenizer.decode(ids, false));
  MR_ASSIGN(out["decode_skip"], tokenizer.decode(ids, true));
  return print_row(out);
}

Result<> tokenize_text(const Tokenizer& tokenizer, const TokenizeOptions& options,
                       const std::string& text) {
  EncodeOptions how;
  how.add_special_tokens = options.add_special_tokens;
  if (options.plain_special) how.special_text = SpecialText::kPlain;
  MR_ASSIGN(const auto ids, tokenizer.encode(text, how));
  if (options.json) {
    ordered_json out = {{"ids", ids}, {"pieces", ordered_json::array()}};
    for (const int32_t id : ids) out["pieces"].push_back(tokenizer.piece(id));
    return print_row(out);
  }
  for (const int32_t id : ids) {
    const ordered_json quoted = shown_bytes(tokenizer, id);
    MR_TRY(write_stdout(fmt::format("{:>8}  {}\n", id, quoted.dump())));
  }
  return {};
}

Result<> tokenize(const TokenizeOptions& options) {
  MR_ASSIGN(const std::string path, resolve_model_path(options.model, model_search_dirs()));
  MR_ASSIGN(const TextModel model, TextModel::open(path));
  if (!options.input.empty()) {
    return for_each_row(options.input, [&](const ordered_json& row) {
      return tokenize_row(model.tokenizer(), row);
    });
  }
  std::string text = options.text;
  if (!options.has_text) {
    text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  return tokenize_text(model.tokenizer(), options, text);
}

}  // namespace

void add_tokenize_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the token ids and pieces of a text");
  command
      ->add_option("TOKENIZER", options->model,
                   "A tokenizer.json, a model folder, a GGUF file, or a model's name")
      ->required();
  CLI::Option* text =
      command->add_option("TEXT", options->text, "The text; standard input if left out");
  command
      ->add_option("--input", options->input,
                   "Read rows {\"text\": ...} from a JSONL file (- for standard input) and write "
                   "their ids and decoded text as JSONL")
      ->excludes(text);
  command->add_flag("--json", options->json, "Write {\"ids\": [...], \"pieces\": [...]}");
  command->add_flag("--add-special-tokens", options->add_special_tokens,
                    "Add what the tokenizer puts around a text (BOS and the like)");
  command->add_flag("--plain-special", options->plain_special,
                    "Read the text of special tokens as plain text");
  command->footer(
      "Examples:\n"
      "  millrace tokenize smollm2 \"What is a millrace?\"\n"
      "  millrace tokenize ./tokenizer.json --input texts.jsonl");
  command->callback([options, text, &exit_code] {
    options->has_text = text->count() > 0;
    const auto done = tokenize(*options);
    if (!done) print_error(done.error());
    exit_code = done ? 0 : 1;
  });
}

}  // namespace millrace
