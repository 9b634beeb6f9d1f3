// Ctrl-C as a question that the program asks, instead of the end of the program.
#pragma once

#include <csignal>

namespace millrace {

// Of a command that was stopped: 128 + SIGINT, as shells expect.
inline constexpr int kInterruptedExitCode = 130;

// While one exists, the first SIGINT only sets a flag, and interrupts a blocking read. A second one
// before the flag is cleared ends the process at once (exit code 130).
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static bool interrupted();
  static void clear();

 private:
  struct sigaction before_;
};

}  // namespace millrace
