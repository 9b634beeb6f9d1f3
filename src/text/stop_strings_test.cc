#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

struct Outcome {
  std::string text;
  std::string stop;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::string& text, size_t step) {
  StopMatcher matcher(stops);
  Outcome out;
  for (size_t at = 0; at < text.size() && !matcher.stopped(); at += step) {
    const auto shown = matcher.push(text.substr(at, step));
    out.text += shown.text;
    if (shown.stop) out.stop = *shown.stop;
  }
  out.text += matcher.flush();
  return out;
}

TEST(StopMatcher, GivesTheSameTextHoweverItIsCut) {
  struct Case {
    std::vector<std::string> stops;
    std::string text;
    Outcome expected;
  };
  const std::vector<Case> cases = {
      {{}, "the wheel", {"the wheel", ""}},
      {{""}, "the wheel", {"the wheel", ""}},
      {{"END"}, "go ENEND on", {"go EN", "END"}},
      {{"\n\n"}, "a\nb\n\nc", {"a\nb", "\n\n"}},
      {{"abc", "b"}, "xabc", {"xa", "b"}},
      {{"abcd", "bc"}, "abce", {"a", "bc"}},
      {{"abc", "bc"}, "abc", {"", "abc"}},
      {{"aab"}, "aaab", {"a", "aab"}},
      {{"stop"}, "sto", {"sto", ""}},
      {{"水车"}, "一水水车水", {"一水", "水车"}},
  };
  for (const Case& c : cases) {
    for (size_t step = 1; step <= c.text.size(); ++step) {
      EXPECT_EQ(run(c.stops, c.text, step), c.expected) << c.text << " by " << step;
    }
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"</s>"});
  EXPECT_EQ(matcher.push("a<").text, "a");
  EXPECT_EQ(matcher.push("b</").text, "<b");
  EXPECT_EQ(matcher.push("s").text, "");
  EXPECT_EQ(matcher.flush(), "</s");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, ShowsNothingAfterTheStop) {
  StopMatcher matcher({"."});
  const auto shown = matcher.push("One. Two.");
  EXPECT_EQ(shown.text, "One");
  EXPECT_EQ(shown.stop, ".");
  EXPECT_EQ(matcher.push("Three").text, "");
  EXPECT_EQ(matcher.flush(), "");
}

}  // namespace
}  // namespace millrace
