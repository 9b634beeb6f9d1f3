// Result, fail, MR_TRY and MR_ASSIGN: values and errors go where they should.
#include "base/error.h"

#include <gtest/gtest.h>

#include <memory>

namespace millrace {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return fail("{} is odd, expected an even number", value);
  return value / 2;
}

Result<> check_even(int value, int& reached) {
  MR_TRY(half(value));
  ++reached;
  return {};
}

Result<int> quarter(int value) {
  MR_ASSIGN(const int once, half(value));
  MR_ASSIGN(const int twice, half(once));
  return twice;
}

Result<std::unique_ptr<int>> boxed_quarter(int value) {
  MR_ASSIGN(auto number, quarter(value));
  return std::make_unique<int>(number);
}

TEST(Error, FailFormatsItsMessage) {
  const Result<int> result = half(3);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "3 is odd, expected an even number");
}

TEST(Error, FailInPrefixesThePlace) {
  const Result<int> result = fail_in("config.json", half(3).error());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "config.json: 3 is odd, expected an even number");
}

TEST(Error, TryReturnsTheErrorAndNothingRunsAfterIt) {
  int reached = 0;
  EXPECT_TRUE(check_even(4, reached));
  EXPECT_EQ(reached, 1);
  const Result<> failed = check_even(5, reached);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "5 is odd, expected an even number");
  EXPECT_EQ(reached, 1);
}

TEST(Error, AssignTakesTheValueOrReturnsTheError) {
  EXPECT_EQ(quarter(12).value(), 3);
  const Result<int> first = quarter(7);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().message, "7 is odd, expected an even number");
  const Result<int> second = quarter(14);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, "7 is odd, expected an even number");
}

TEST(Error, AssignMovesWhatCannotBeCopied) {
  auto box = boxed_quarter(20);
  ASSERT_TRUE(box);
  EXPECT_EQ(**box, 5);
}

}  // namespace
}  // namespace millrace
