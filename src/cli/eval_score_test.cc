#include "cli/eval_score.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

std::string number(std::string_view text) { return final_number(text).value_or("none"); }

TEST(EvalScore, TheNumberAfterTheMarkCounts) {
  EXPECT_EQ(number("It costs 2*2=4 dollars.\n#### 18"), "18");
  EXPECT_EQ(number("#### 18\n\nThen there were 20."), "18");
  EXPECT_EQ(number("####18"), "18");
  EXPECT_EQ(number("#### $1,234"), "1234");
  EXPECT_EQ(number("#### -$5"), "-5");
  EXPECT_EQ(number("#### $-5.00 each"), "-5");
  EXPECT_EQ(number("#### 1,234,567 2"), "1234567");
  EXPECT_EQ(number("#### 7.\n#### 8"), "7");
}

TEST(EvalScore, WithoutTheMarkTheLastNumberCounts) {
  EXPECT_EQ(number("First 3, then 4."), "4");
  EXPECT_EQ(number("The answer is $1,080.50!"), "1080.5");
  EXPECT_EQ(number("So 24-6=18 cups"), "18");
  EXPECT_EQ(number("So 18=24-6"), "6");
  EXPECT_EQ(number("It fell to -3 degrees"), "-3");
  EXPECT_EQ(number("#### none of these, but 5"), "5");
  EXPECT_EQ(number("5 and ####"), "5");
  EXPECT_EQ(number("one of 1,2 or 3,45"), "45");
  EXPECT_EQ(number("1234,567"), "567");
}

TEST(EvalScore, EqualNumbersAreEqualTexts) {
  for (const char* text : {"5", "5.0", "5.", "05", "$5", "5.000", "5%"}) {
    EXPECT_EQ(number(text), "5") << text;
  }
  EXPECT_EQ(number("-0.0"), "0");
  EXPECT_EQ(number(".50"), "0.5");
  EXPECT_EQ(number("000"), "0");
  EXPECT_EQ(number(std::string(400, '9')), std::string(400, '9'));
}

TEST(EvalScore, TextsWithoutANumberHaveNone) {
  for (const char* text : {"", "####", "#### ", "no number", "-", "$", "-.", "., -$"}) {
    EXPECT_FALSE(final_number(text)) << text;
  }
}

TEST(EvalScore, Trim) {
  EXPECT_EQ(trim(" \n4821\t\r\n"), "4821");
  EXPECT_EQ(trim("a b"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

// Figures of the same formula, computed apart; 0 of n is z^2 / (n + z^2) in closed form.
TEST(EvalScore, WilsonInterval) {
  const auto expect = [](int64_t correct, int64_t total, double low, double high) {
    const Interval interval = wilson_interval(correct, total);
    EXPECT_NEAR(interval.low, low, 1e-6) << correct << " of " << total;
    EXPECT_NEAR(interval.high, high, 1e-6) << correct << " of " << total;
  };
  expect(0, 10, 0, 0.277533);
  expect(10, 10, 0.722467, 1);
  expect(5, 10, 0.236593, 0.763407);
  expect(1, 2, 0.094531, 0.905469);
  expect(0, 0, 0, 1);
  EXPECT_EQ(wilson_interval(60, 60).high, 1);
  EXPECT_EQ(wilson_interval(0, 60).low, 0);
}

}  // namespace
}  // namespace millrace
