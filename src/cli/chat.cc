#include "cli/chat.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/output.h"
#include "cli/summary.h"

namespace millrace {
namespace {

constexpr const char* kHelp =
    "/help           this text\n"
    "/clear          forget the conversation\n"
    "/system TEXT    set the system message and forget the conversation; without TEXT: none\n"
    "/exit           leave (also Ctrl-D)\n"
    "Ctrl-C          stop the answer\n"
    "A line that ends in \\ goes on in the next; \"\"\" begins and ends a text of several lines.\n";

// What has been said so far.
class Conversation {
 public:
  Conversation(const Session& session, const ChatOptions& options)
      : session_(session), use_template_(options.use_template), system_(options.system) {
    clear();
  }

  void clear() {
    messages_ = nlohmann::ordered_json::array();
    text_.clear();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  void set_system(std::string system) {
    system_ = std::move(system);
    clear();
  }

  // The prompt for the next answer, `message` included.
  Result<std::vector<int32_t>> prompt_with(const std::string& message) const {
    if (!use_template_)
      return session_.text().encode_prompt(plain_prompt(system_, text_ + message));
    auto messages = messages_;
    messages.push_back({{"role", "user"}, {"content", message}});
    return session_.encode_chat(messages);
  }

  void add_turn(const std::string& message, const std::string& answer) {
    add("user", message);
    add("assistant", answer);
  }

 private:
  void add(const char* role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
    text_ += content;
  }

  const Session& session_;
  bool use_template_;
  std::string system_;
  nlohmann::ordered_json messages_;
  std::string text_;  // what was said, without a template
};

// One question and its answer. Errors about the question (too long, refused by the template) are
// shown, and the conversation stays as it was; an error of the output ends the chat.
Result<> answer(Session& session, const ChatOptions& options, Conversation& conversation,
                const std::string& message) {
  auto prompt = conversation.prompt_with(message);
  if (!prompt) {
    print_error(prompt.error());
    return {};
  }
  Result<> written;
  const auto show = [&](int, std::string_view text) { return written = write_stdout(text); };
  InterruptScope::clear();
  const auto generation = session.generate(std::move(*prompt), options.params, show);
  InterruptScope::clear();
  MR_TRY(written);
  if (!generation) {
    print_error(generation.error());
    std::fputs("/clear forgets the conversation so far.\n", stderr);
    return {};
  }
  MR_TRY(write_stdout("\n"));
  print_summary(*generation);
  conversation.add_turn(message, generation->choices.front().text);
  return {};
}

// True if the line was a command; `leave` is set by /exit.
bool obey(const std::string& line, Conversation& conversation, bool& leave) {
  if (!line.starts_with('/')) return false;
  const size_t space = line.find(' ');
  const std::string command = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (command == "/exit" || command == "/quit" || command == "/bye") {
    leave = true;
  } else if (command == "/clear") {
    conversation.clear();
    std::fputs("The conversation is forgotten.\n", stderr);
  } else if (command == "/system") {
    conversation.set_system(rest);
    std::fputs(rest.empty() ? "No system message.\n" : "The system message is set.\n", stderr);
  } else {
    if (command != "/help" && command != "/?") {
      std::fprintf(stderr, "No command %s.\n", command.c_str());
    }
    std::fputs(kHelp, stderr);
  }
  return true;
}

}  // namespace

std::string plain_prompt(const std::string& system, const std::string& said) {
  return system.empty() ? said : system + "\n" + said;
}

Result<> run_chat(Session& session, const ChatOptions& options) {
  if (options.use_template) {
    if (auto chat = session.text().chat_template(); !chat) {
      return fail("{}; --no-chat-template continues plain text", chat.error().message);
    }
  }
  std::fputs("Type a message; /help lists the commands, Ctrl-D leaves.\n", stderr);
  InterruptScope interrupts;
  LineEditor editor;
  Conversation conversation(session, options);
  while (true) {
    const Line message = read_message([&](const char* prompt) { return editor.read(prompt); });
    if (message.status == LineStatus::kEnd) return {};
    if (message.status == LineStatus::kInterrupted) continue;
    if (message.text.find_first_not_of(" \t\n") == std::string::npos) continue;
    editor.remember(message.text);
    bool leave = false;
    if (obey(message.text, conversation, leave)) {
      if (leave) return {};
      continue;
    }
    MR_TRY(answer(session, options, conversation, message.text));
  }
}

}  // namespace millrace
