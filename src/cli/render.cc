#include "cli/render.h"

#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "cli/jsonl.h"
#include "cli/output.h"
#include "io/mapped_file.h"
#include "io/model_path.h"
#include "text/text_model.h"

namespace millrace {
namespace {

using nlohmann::ordered_json;

struct RenderOptions {
  std::string model;
  std::string input;
  std::string chat_template;
  std::string now;
  bool keep_nulls = false;
};

// "2026-03-01 12:00:00", local time.
Result<int64_t> parse_time(const std::string& text) {
  std::tm parts = {};
  const char* end = strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &parts);
  if (!end || *end != '\0') {
    return fail("--now {}: expected a local time like \"2026-03-01 12:00:00\"", text);
  }
  parts.tm_isdst = -1;
  return std::mktime(&parts);
}

Result<ChatRequest> request_of(const ordered_json& row) {
  ChatRequest request;
  if (!row.contains("messages")) return fail("the row has no \"messages\"");
  request.messages = row["messages"];
  request.tools = row.value("tools", ordered_json());
  if (row.contains("add_generation_prompt")) {
    if (!row["add_generation_prompt"].is_boolean()) {
      return fail("\"add_generation_prompt\" must be true or false");
    }
    request.add_generation_prompt = row["add_generation_prompt"];
  } else {
    request.add_generation_prompt = false;
  }
  request.variables = row.value("kwargs", ordered_json::object());
  return request;
}

// Writes the text and its ids, and the ids with the caller's control tokens as plain text; or the
// template's error, which ends the row and not the program.
Result<> render_row(const TextModel& model, const RenderOptions& options,
                    std::optional<int64_t> now, const ordered_json& row) {
  MR_ASSIGN(ChatRequest request, request_of(row));
  request.keep_nulls = options.keep_nulls;
  request.now = now;
  const bool with_tools = request.tools.is_array() && !request.tools.empty();
  MR_ASSIGN(const ChatTemplate chat_template, model.chat_template(with_tools));

  ordered_json out;
  for (const char* key : {"template", "tokenizer", "name"}) {
    if (row.contains(key)) out[key] = row[key];
  }
  const auto text = chat_template.render(request);
  const auto sanitized = chat_template.encode(request, model.tokenizer());
  if (!text) {
    out["error"] = text.error().message;
  } else {
    out["text"] = *text;
    MR_ASSIGN(const auto ids, model.tokenizer().encode(*text));
    out["ids"] = ids;
    if (sanitized) out["ids_sanitized"] = *sanitized;
  }
  return print_row(out);
}

Result<> render(const RenderOptions& options) {
  MR_ASSIGN(const std::string path, resolve_model_path(options.model, model_search_dirs()));
  MR_ASSIGN(TextModel model, TextModel::open(path));
  if (!options.chat_template.empty()) {
    MR_ASSIGN(const MappedFile file, MappedFile::open(options.chat_template));
    model.set_chat_template(
        {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  }
  // A model without a template, or with a broken one, is an error even if there are no rows.
  if (const auto own = model.chat_template(); !own) {
    return fail("{}: {}{}", path, own.error().message,
                model.has_chat_template() ? "" : "; --chat-template gives one");
  }
  std::optional<int64_t> now;
  if (!options.now.empty()) {
    MR_ASSIGN(now, parse_time(options.now));
  }
  return for_each_row(
      options.input, [&](const ordered_json& row) { return render_row(model, options, now, row); });
}

}  // namespace

void add_render_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RenderOptions>();
  CLI::App* command = app.add_subcommand("render", "Render chats by a model's chat template");
  command->add_option("MODEL", options->model, "A model folder, a GGUF file, or a model's name")
      ->required();
  command
      ->add_option("--input", options->input,
                   "Rows {\"messages\": [...], \"tools\": ..., \"add_generation_prompt\": ..., "
                   "\"kwargs\": {...}} as JSONL; - for standard input")
      ->required();
  command->add_option("--chat-template", options->chat_template,
                      "A Jinja file to use in place of the model's template");
  command->add_option("--now", options->now,
                      "What templates see as the time: local, \"YYYY-MM-DD HH:MM:SS\"");
  command->add_flag("--keep-nulls", options->keep_nulls, "Leave null-valued keys in the messages");
  command->footer(
      "Example:\n"
      "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}' | millrace render "
      "smollm2 --input -");
  command->callback([options, &exit_code] {
    const auto done = render(*options);
    if (!done) print_error(done.error());
    exit_code = done ? 0 : 1;
  });
}

}  // namespace millrace
