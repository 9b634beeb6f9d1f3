// The progress bar: drawn on a terminal only, and removed when the work ends.
#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace millrace {
namespace {

// Two halves of work, each longer than the delay after which a bar appears.
void work(Progress& progress) {
  progress.begin("packing", 2'000'000, true);
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    progress.advance(1'000'000);
  }
  progress.end();
}

// Makes stderr a pseudo-terminal for its lifetime.
class TerminalStderr {
 public:
  TerminalStderr() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) return;
    slave_ = open(ptsname(master_), O_RDWR | O_NOCTTY);
    if (slave_ < 0) return;
    saved_ = dup(STDERR_FILENO);
    dup2(slave_, STDERR_FILENO);
  }
  ~TerminalStderr() {
    if (saved_ >= 0) {
      dup2(saved_, STDERR_FILENO);
      close(saved_);
    }
    if (slave_ >= 0) close(slave_);
    if (master_ >= 0) close(master_);
  }
  bool works() const { return saved_ >= 0; }
  // What was written so far; waits until nothing more comes for a while.
  std::string written() const {
    std::string text;
    pollfd ready{.fd = master_, .events = POLLIN, .revents = 0};
    while (poll(&ready, 1, 50) == 1) {
      char buffer[4096];
      const ssize_t size = read(master_, buffer, sizeof buffer);
      if (size <= 0) break;
      text.append(buffer, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  int master_ = -1;
  int slave_ = -1;
  int saved_ = -1;
};

TEST(Progress, SilentWhereStderrIsNoTerminal) {
  testing::internal::CaptureStderr();
  ProgressBar bar;
  work(bar);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, DrawsOnATerminalAndRemovesTheBar) {
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  std::string text;
  {
    TerminalStderr terminal;
    if (!terminal.works()) GTEST_SKIP() << "no pseudo-terminal on this machine";
    ProgressBar bar;
    work(bar);
    text = terminal.written();
  }
  EXPECT_NE(text.find("packing [===============               ]  50% 1.0 MB / 2.0 MB"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("100% 2.0 MB / 2.0 MB"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\r\x1b[K")) << text;
}

TEST(Progress, ShortWorkShowsNoBar) {
  setenv("TERM", "xterm", 1);
  std::string text;
  {
    TerminalStderr terminal;
    if (!terminal.works()) GTEST_SKIP() << "no pseudo-terminal on this machine";
    ProgressBar bar;
    bar.begin("loading", 1, false);
    bar.advance(1);
    bar.end();
    text = terminal.written();
  }
  EXPECT_EQ(text, "");
}

TEST(Progress, NoProgressTakesEverything) {
  NoProgress progress;
  progress.begin("nothing", 0, false);
  progress.advance(10);
  progress.end();
}

}  // namespace
}  // namespace millrace
