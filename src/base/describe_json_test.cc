#include "base/describe_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

TEST(DescribeJson, ValuesInWords) {
  EXPECT_EQ(describe(nlohmann::json()), "null");
  EXPECT_EQ(describe(nlohmann::json(7)), "7");
  EXPECT_EQ(describe(nlohmann::json(true)), "true");
  EXPECT_EQ(describe(nlohmann::json("a\nb")), "\"a b\"");
  EXPECT_EQ(describe(nlohmann::json::array({1, 2})), "an array of 2");
  EXPECT_EQ(describe(nlohmann::json{{"a", 1}}), "an object of 1");
}

TEST(DescribeJson, LongTextsAreCutBetweenCharacters) {
  EXPECT_EQ(one_short_line(std::string(60, 'x')), std::string(60, 'x'));
  EXPECT_EQ(one_short_line(std::string(61, 'x')), std::string(60, 'x') + "...");
  // The 60th byte is the first of a two-byte character.
  EXPECT_EQ(one_short_line(std::string(59, 'x') + "\xc3\xa9 and more"),
            std::string(59, 'x') + "...");
  EXPECT_EQ(one_short_line("a\r\n\x7f"
                           "b"),
            "a   b");
}

}  // namespace
}  // namespace millrace
