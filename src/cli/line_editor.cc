#include "cli/line_editor.h"

#include <histedit.h>
#include <termios.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cli/interrupt.h"

namespace millrace {

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::FILE* terminal = nullptr;  // owned if not stderr
  const char* prompt = "";
};

namespace {

char* prompt_of(EditLine* editor) {
  const char** prompt = nullptr;
  el_get(editor, EL_CLIENTDATA, &prompt);
  return const_cast<char*>(*prompt);
}

// The terminal as it was before the editor took it over; a signal handler can reach only a global.
termios original_terminal;

// Ends the process as the signal would have, with the terminal as it was: a shell whose terminal is
// left without echo is of no use.
void restore_and_end(int signal) {
  tcsetattr(STDIN_FILENO, TCSANOW, &original_terminal);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

LineEditor::LineEditor() : state_(std::make_unique<State>()) {
  // Bytes above 127 are characters only in a UTF-8 locale.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  if (tcgetattr(STDIN_FILENO, &original_terminal) == 0) {
    std::signal(SIGTERM, restore_and_end);
    std::signal(SIGHUP, restore_and_end);
  }
  if (!isatty(STDERR_FILENO)) state_->terminal = std::fopen("/dev/tty", "w");
  std::FILE* out = state_->terminal ? state_->terminal : stderr;
  state_->editor = el_init("millrace", stdin, out, out);
  state_->history = history_init();
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, 1000);
  history(state_->history, &event, H_SETUNIQUE, 1);
  el_set(state_->editor, EL_CLIENTDATA, &state_->prompt);
  el_set(state_->editor, EL_PROMPT, prompt_of);
  el_set(state_->editor, EL_EDITOR, "emacs");
  el_set(state_->editor, EL_HIST, history, state_->history);
  el_set(state_->editor, EL_SIGNAL, 0);
  // Libedit takes special characters of the terminal that are switched off for NUL, and NUL for
  // "quote the next key". A Ctrl-D that was typed while an answer ran arrives as NUL, too.
  el_set(state_->editor, EL_BIND, "^@", "ed-unassigned", nullptr);
  el_source(state_->editor, nullptr);
}

LineEditor::~LineEditor() {
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGHUP, SIG_DFL);
  history_end(state_->history);
  el_end(state_->editor);
  if (state_->terminal) std::fclose(state_->terminal);
}

Line LineEditor::read(const char* prompt) {
  state_->prompt = prompt;
  int count = 0;
  const char* text = el_gets(state_->editor, &count);
  if (InterruptScope::interrupted()) {
    InterruptScope::clear();
    el_reset(state_->editor);
    std::fputc('\n', state_->terminal ? state_->terminal : stderr);
    return {LineStatus::kInterrupted, {}};
  }
  if (text == nullptr || count <= 0) {
    std::fputc('\n', state_->terminal ? state_->terminal : stderr);
    return {LineStatus::kEnd, {}};
  }
  std::string line(text, static_cast<size_t>(count));
  if (line.ends_with('\n')) line.pop_back();
  return {LineStatus::kLine, std::move(line)};
}

void LineEditor::remember(const std::string& entry) {
  HistEvent event;
  history(state_->history, &event, H_ENTER, entry.c_str());
}

Line read_message(const std::function<Line(const char* prompt)>& read_line) {
  constexpr std::string_view kQuotes = "\"\"\"";
  Line message = read_line(">>> ");
  if (message.status != LineStatus::kLine) return message;

  if (message.text.starts_with(kQuotes)) {
    std::string text = message.text.substr(kQuotes.size());
    while (!text.ends_with(kQuotes)) {
      Line next = read_line("... ");
      if (next.status == LineStatus::kInterrupted) return next;
      if (next.status == LineStatus::kEnd) return {LineStatus::kLine, text};
      text += '\n' + next.text;
    }
    text.resize(text.size() - kQuotes.size());
    return {LineStatus::kLine, text};
  }
  while (message.text.ends_with('\\')) {
    message.text.back() = '\n';
    const Line next = read_line("... ");
    if (next.status == LineStatus::kInterrupted) return next;
    if (next.status == LineStatus::kEnd) break;
    message.text += next.text;
  }
  return message;
}

}  // namespace millrace
