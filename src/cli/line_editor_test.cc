#include "cli/line_editor.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

// Reads one message from given lines; what is left stands for Ctrl-D.
struct Typed {
  std::vector<Line> lines;
  std::vector<std::string> prompts;

  Line message() {
    return read_message([this](const char* prompt) {
      prompts.emplace_back(prompt);
      if (lines.empty()) return Line{};
      const Line line = lines.front();
      lines.erase(lines.begin());
      return line;
    });
  }
};

Line line(const char* text) { return {LineStatus::kLine, text}; }

TEST(ReadMessage, OneLine) {
  Typed typed{{line("hello")}, {}};
  EXPECT_EQ(typed.message().text, "hello");
  EXPECT_EQ(typed.message().status, LineStatus::kEnd);
}

TEST(ReadMessage, BackslashGoesOn) {
  Typed typed{{line("a\\"), line("b\\"), line("c"), line("d")}, {}};
  EXPECT_EQ(typed.message().text, "a\nb\nc");
  EXPECT_EQ(typed.prompts, (std::vector<std::string>{">>> ", "... ", "... "}));
  EXPECT_EQ(typed.message().text, "d");
}

TEST(ReadMessage, QuotesHoldSeveralLines) {
  Typed typed{{line("\"\"\"a"), line(""), line("b \\"), line("c\"\"\""), line("d")}, {}};
  EXPECT_EQ(typed.message().text, "a\n\nb \\\nc");
  EXPECT_EQ(typed.message().text, "d");
  Typed one_line{{line("\"\"\"a\"\"\"")}, {}};
  EXPECT_EQ(one_line.message().text, "a");
  Typed empty{{line("\"\"\""), line("\"\"\"")}, {}};
  EXPECT_EQ(empty.message().text, "\n");
}

TEST(ReadMessage, CtrlCDropsAndTheEndKeeps) {
  Typed dropped{{line("a\\"), {LineStatus::kInterrupted, ""}, line("b")}, {}};
  EXPECT_EQ(dropped.message().status, LineStatus::kInterrupted);
  EXPECT_EQ(dropped.message().text, "b");
  Typed ended{{line("\"\"\"a")}, {}};
  const Line message = ended.message();
  EXPECT_EQ(message.status, LineStatus::kLine);
  EXPECT_EQ(message.text, "a");
}

}  // namespace
}  // namespace millrace
