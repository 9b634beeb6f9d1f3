#include "base/env.h"

#include <cstdlib>

namespace millrace::env {
namespace {

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace

std::optional<std::string> isa() { return get("MILLRACE_ISA"); }
std::optional<std::string> models_dir() { return get("MILLRACE_MODELS"); }
std::optional<std::string> log_level() { return get("MILLRACE_LOG"); }
std::optional<std::string> fuzz_seconds() { return get("MILLRACE_FUZZ_SECONDS"); }
std::optional<std::string> test_selection() { return get("MILLRACE_TEST_SELECTION"); }
std::optional<std::string> home() { return get("HOME"); }
std::optional<std::string> cache_home() { return get("XDG_CACHE_HOME"); }

bool plain_terminal() {
  const auto term = get("TERM");
  return get("NO_COLOR").has_value() || (term && *term == "dumb");
}

}  // namespace millrace::env
