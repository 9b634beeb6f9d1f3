#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/golden_rows.h"

namespace millrace {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

size_t count_replacements(std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(kReplacement); at != text.npos; at = text.find(kReplacement, at + 3)) {
    ++count;
  }
  return count;
}

bool is_whole_utf8(const std::string& text) { return Utf8Stream().push(text) == text; }

TEST(Detokenizer, ObeysTheLawsOnTheGoldenStreams) {
  golden::SkippedRows skipped;
  for (const auto& row : golden::rows("stream")) {
    const TextModel* model = golden::tokenizer(row["tokenizer"]);
    if (!model) {
      skipped.add();
      continue;
    }
    const std::string name =
        row["tokenizer"].get<std::string>() + "/" + row["name"].get<std::string>();
    const std::string kind = row["kind"];
    const std::string text = row["text"];
    Detokenizer detokenizer(model->tokenizer(),
                            {.skip_special_tokens = row["skip_special_tokens"].get<bool>()});
    std::string joined;
    for (const int32_t id : row["ids"]) {
      const std::string delta = detokenizer.push(id);
      EXPECT_TRUE(is_whole_utf8(delta)) << name;
      joined += delta;
      EXPECT_LE(count_replacements(joined), count_replacements(text)) << name;
      if (row.value("incomplete_tail", false)) {
        EXPECT_EQ(count_replacements(delta), 0u) << name;
      }
    }
    const std::string tail = detokenizer.flush();
    if (row.value("incomplete_tail", false)) {
      EXPECT_EQ(tail, kReplacement) << name;
    }
    EXPECT_EQ(joined + tail, text) << name << " (" << kind << ")";
  }
}

TEST(Utf8Stream, GivesTheSameTextHoweverItIsCut) {
  const std::string bytes =
      "a\xC3\xA9\xE6\xB0\xB4\xF0\x9F\x8C\x8A\xC0\x80\xE0\x80\x80\xED\xA0\x80\xF0\x8F\xBF"
      "\xF4\x90\x80\x80\xF5\xFFz\xE6\xB0q\xF0\x9F\x8C";
  Utf8Stream whole;
  std::string expected = whole.push(bytes);
  expected += whole.flush();
  // One U+FFFD for each maximal part: C0, 80 | E0, 80, 80 | ED, A0, 80 | F0, 8F, BF | F4, 90, 80,
  // 80 | F5 | FF | E6 B0 | F0 9F 8C.
  EXPECT_EQ(count_replacements(expected), 2u + 3 + 3 + 3 + 4 + 1 + 1 + 1 + 1);
  for (size_t step = 1; step < bytes.size(); ++step) {
    Utf8Stream stream;
    std::string joined;
    for (size_t at = 0; at < bytes.size(); at += step)
      joined += stream.push(bytes.substr(at, step));
    joined += stream.flush();
    EXPECT_EQ(joined, expected) << step;
  }
  EXPECT_EQ(whole.flush(), "");
}

TEST(Utf8Stream, ShowsACharacterWithItsLastByte) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF0"), "");
  EXPECT_EQ(stream.push("\x9F\x8C"), "");
  EXPECT_EQ(stream.push("\x8A"), "\xF0\x9F\x8C\x8A");
  EXPECT_EQ(stream.push("\xE6\xB0"), "");
  EXPECT_EQ(stream.push("A"), std::string(kReplacement) + "A");
}

}  // namespace
}  // namespace millrace
