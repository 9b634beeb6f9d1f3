#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/env.h"

namespace millrace {
namespace {

constexpr int kBarWidth = 30;
constexpr int64_t kRedrawMs = 100;

std::string amount(int64_t units, bool bytes) {
  if (!bytes) return fmt::format("{}", units);
  return fmt::format("{:.1f} MB", static_cast<double>(units) / 1e6);
}

}  // namespace

bool stderr_is_rich_terminal() { return isatty(STDERR_FILENO) == 1 && !env::plain_terminal(); }

ProgressBar::ProgressBar() : on_terminal_(stderr_is_rich_terminal()) {}

ProgressBar::~ProgressBar() { end(); }

void ProgressBar::begin(const std::string& what, int64_t total, bool unit_is_bytes) {
  end();
  what_ = what;
  total_ = std::max<int64_t>(total, 1);
  unit_is_bytes_ = unit_is_bytes;
  done_ = 0;
  started_ = std::chrono::steady_clock::now();
  // Short work shows no bar at all.
  next_draw_ms_ = 2 * kRedrawMs;
}

void ProgressBar::advance(int64_t units) {
  done_.fetch_add(units, std::memory_order_relaxed);
  if (!on_terminal_) return;
  const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                             std::chrono::steady_clock::now() - started_)
                             .count();
  int64_t due = next_draw_ms_.load(std::memory_order_relaxed);
  if (now_ms < due || !next_draw_ms_.compare_exchange_strong(due, now_ms + kRedrawMs)) return;
  draw();
}

void ProgressBar::draw() {
  std::lock_guard lock(draw_mutex_);
  const int64_t done = std::min(done_.load(std::memory_order_relaxed), total_);
  const double share = static_cast<double>(done) / static_cast<double>(total_);
  const int filled = static_cast<int>(share * kBarWidth);
  std::string bar(kBarWidth, ' ');
  std::fill_n(bar.begin(), filled, '=');
  const std::string line =
      fmt::format("\r\x1b[K{} [{}] {:3.0f}% {} / {}", what_, bar, share * 100,
                  amount(done, unit_is_bytes_), amount(total_, unit_is_bytes_));
  std::fwrite(line.data(), 1, line.size(), stderr);
  drawn_ = true;
}

void ProgressBar::end() {
  std::lock_guard lock(draw_mutex_);
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

}  // namespace millrace
