// MR_CHECK: silent while the condition holds, and says where and what when it does not.
#include "base/check.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(Check, HoldsAndEvaluatesOnce) {
  int evaluated = 0;
  MR_CHECK(++evaluated == 1, "unused {}", 1);
  EXPECT_EQ(evaluated, 1);
}

TEST(Check, FormatsItsMessageOnlyOnFailure) {
  int formatted = 0;
  const auto message = [&formatted] {
    ++formatted;
    return std::string("text");
  };
  MR_CHECK(true, "{}", message());
  EXPECT_EQ(formatted, 0);
}

TEST(CheckDeathTest, NamesPlaceConditionAndMessage) {
  const int rows = 3;
  EXPECT_DEATH(MR_CHECK(rows == 4, "{} rows", rows),
               "check_test\\.cc:[0-9]+: internal error: check `rows == 4` failed: 3 rows");
  EXPECT_DEATH(MR_CHECK(rows == 4), "check `rows == 4` failed\n");
}

}  // namespace
}  // namespace millrace
