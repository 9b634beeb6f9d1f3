// Reads what a person types: editing and history, and input of several lines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace millrace {

enum class LineStatus : uint8_t { kLine, kInterrupted, kEnd };

// One line as typed, without its newline. A source of lines is the editor below, or a test.
struct Line {
  LineStatus status = LineStatus::kEnd;
  std::string text;
};

// Lines from the terminal, edited with libedit. The prompts go to the terminal by way of standard
// error, never to standard output.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Line read(const char* prompt);
  // Adds an entry to the history of this session.
  void remember(const std::string& entry);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Reads one message: a line; lines joined by newlines while they end in a backslash; or everything
// between three double quotes at the start of a line and three at the end of one. Ctrl-C drops what
// was typed.
Line read_message(const std::function<Line(const char* prompt)>& read_line);

}  // namespace millrace
