// Log lines on stderr: "millrace: warning: text". Levels below MILLRACE_LOG (default info) are
// dropped. Thread-safe; a line is written in one piece.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace millrace::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// True if lines of this level are written.
bool enabled(Level level);

// Changes the least level that is written (the start value comes from MILLRACE_LOG).
void set_level(Level level);

void write(Level level, std::string_view message);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug)) {
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace millrace::log
