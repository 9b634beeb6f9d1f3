// Progress of long work (loading, benchmarking): an interface that lower layers report to, and a
// bar on stderr that is drawn only on a terminal.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace millrace {

// Receives progress. Calls may come from several threads at once.
class Progress {
 public:
  virtual ~Progress() = default;
  // Starts a piece of work of `total` units (bytes, items). `unit_is_bytes` selects the display.
  virtual void begin(const std::string& what, int64_t total, bool unit_is_bytes) = 0;
  virtual void advance(int64_t units) = 0;
  // Ends the piece of work and removes its bar.
  virtual void end() = 0;
};

// Reports nothing.
class NoProgress final : public Progress {
 public:
  void begin(const std::string&, int64_t, bool) override {}
  void advance(int64_t) override {}
  void end() override {}
};

// A bar on stderr, redrawn at most ten times a second; silent when stderr is not a terminal.
class ProgressBar final : public Progress {
 public:
  ProgressBar();
  ~ProgressBar() override;
  void begin(const std::string& what, int64_t total, bool unit_is_bytes) override;
  void advance(int64_t units) override;
  void end() override;

 private:
  void draw();

  const bool on_terminal_;
  std::string what_;
  int64_t total_ = 0;
  bool unit_is_bytes_ = false;
  std::atomic<int64_t> done_{0};
  std::chrono::steady_clock::time_point started_;
  std::atomic<int64_t> next_draw_ms_{0};
  std::mutex draw_mutex_;
  bool drawn_ = false;
};

// True if stderr is a terminal on which colours and cursor movement are welcome.
bool stderr_is_rich_terminal();

}  // namespace millrace
