#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "base/env.h"

namespace millrace::log {
namespace {

Level level_from_env() {
  const std::string name = env::log_level().value_or("info");
  if (name == "debug") return Level::kDebug;
  if (name == "warning") return Level::kWarning;
  if (name == "error") return Level::kError;
  return Level::kInfo;
}

std::atomic<Level>& least_level() {
  static std::atomic<Level> level{level_from_env()};
  return level;
}

const char* name_of(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug: ";
    case Level::kInfo:
      return "";
    case Level::kWarning:
      return "warning: ";
    case Level::kError:
      return "error: ";
  }
  return "";
}

}  // namespace

bool enabled(Level level) { return level >= least_level().load(std::memory_order_relaxed); }

void set_level(Level level) { least_level().store(level, std::memory_order_relaxed); }

void write(Level level, std::string_view message) {
  if (!enabled(level)) return;
  const std::string line = fmt::format("millrace: {}{}\n", name_of(level), message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace millrace::log
