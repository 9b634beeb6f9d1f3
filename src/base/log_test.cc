// Log lines: levels, prefixes, and that lines of several threads do not mix.
#include "base/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace millrace::log {
namespace {

class Log : public testing::Test {
 protected:
  ~Log() override { set_level(Level::kInfo); }
};

template <typename Function>
std::string stderr_of(Function&& function) {
  testing::internal::CaptureStderr();
  function();
  return testing::internal::GetCapturedStderr();
}

TEST_F(Log, LevelsBelowTheLeastAreDropped) {
  const auto all = [] {
    debug("a {}", 1);
    info("b {}", 2);
    warning("c {}", 3);
    error("d {}", 4);
  };
  set_level(Level::kDebug);
  EXPECT_EQ(stderr_of(all),
            "millrace: debug: a 1\nmillrace: b 2\nmillrace: warning: c 3\nmillrace: error: d 4\n");
  set_level(Level::kWarning);
  EXPECT_FALSE(enabled(Level::kInfo));
  EXPECT_TRUE(enabled(Level::kWarning));
  EXPECT_EQ(stderr_of(all), "millrace: warning: c 3\nmillrace: error: d 4\n");
  set_level(Level::kError);
  EXPECT_EQ(stderr_of(all), "millrace: error: d 4\n");
}

TEST_F(Log, LinesOfThreadsStayWhole) {
  constexpr int kThreads = 4, kLines = 200;
  const std::string text = stderr_of([] {
    std::vector<std::jthread> threads(kThreads);
    for (int t = 0; t < kThreads; ++t) {
      threads[static_cast<size_t>(t)] = std::jthread([t] {
        for (int i = 0; i < kLines; ++i) info("{}", std::string(100, static_cast<char>('a' + t)));
      });
    }
  });
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_EQ(line.size(), 110u) << line;
    ASSERT_EQ(line.substr(0, 10), "millrace: ");
    ASSERT_EQ(std::ranges::count(line.substr(10), line[10]), 100) << line;
  }
  EXPECT_EQ(count, kThreads * kLines);
}

}  // namespace
}  // namespace millrace::log
