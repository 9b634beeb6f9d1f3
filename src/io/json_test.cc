#include "io/json.h"

#include <gtest/gtest.h>

#include "io/test_files.h"

namespace millrace {
namespace {

std::string error_of(std::string_view text, int depth = kMaxJsonDepth) {
  const auto result = parse_json(text, depth);
  return result ? "no error" : result.error().message;
}

TEST(Json, ErrorsHavePositions) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"b\" 2}"), "line 2, column 6: not valid JSON");
  EXPECT_EQ(error_of(""), "line 1, column 1: not valid JSON");
  EXPECT_EQ(error_of("{\"a\": 1} x"), "line 1, column 10: not valid JSON");
  EXPECT_EQ(error_of("[1e999]"), "not valid JSON: a number is out of range");
  EXPECT_EQ(error_of("\"\xff\""), "line 1, column 2: not valid JSON");
}

TEST(Json, DepthIsBounded) {
  EXPECT_EQ(error_of("[[1]]", 2), "no error");
  EXPECT_EQ(error_of("[[[1]]]", 2), "line 1, column 3: nested deeper than 2 levels");
  EXPECT_EQ(error_of("\"[[[[\"", 2), "no error");
  EXPECT_EQ(error_of("[\"\\\"[[\"]", 1), "no error");
  EXPECT_EQ(error_of(std::string(100000, '[')), "line 1, column 65: nested deeper than 64 levels");
}

TEST(Json, FilesAreNamed) {
  const testing::TempFolder folder;
  EXPECT_EQ(read_json_file(folder.file("x.json")).error().message,
            folder.file("x.json") + ": no such file");
  EXPECT_EQ(read_json_file(folder.write("y.json", "{,}")).error().message,
            folder.file("y.json") + ": line 1, column 2: not valid JSON");
  const auto good = read_json_file(folder.write("z.json", "{\"a\": [1, 2]}"));
  ASSERT_TRUE(good);
  EXPECT_EQ((*good)["a"][1], 2);
}

}  // namespace
}  // namespace millrace
