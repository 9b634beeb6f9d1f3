// The one place that reads environment variables. Everything else takes its settings as arguments.
#pragma once

#include <optional>
#include <string>

namespace millrace::env {

// MILLRACE_ISA: forces an instruction set (portable, avx2, avx512, avx512vnni); unset: the best
// one.
std::optional<std::string> isa();

// MILLRACE_MODELS: folder in which model names (for example `smollm2`) are looked up.
std::optional<std::string> models_dir();

// MILLRACE_LOG: least level that is logged: debug, info (default), warning, error.
std::optional<std::string> log_level();

// MILLRACE_FUZZ_SECONDS: how long each fuzz test goes on; `./dev test --nightly` sets it. Unset:
// the saved corpus and a short run.
std::optional<std::string> fuzz_seconds();

// MILLRACE_TEST_SELECTION: for tests only. "recent": sparse attention takes the most recent keys in
// place of those that the indexer finds best, so that a test can show that it would notice.
std::optional<std::string> test_selection();

// HOME, or nothing.
std::optional<std::string> home();

// XDG_CACHE_HOME, or nothing.
std::optional<std::string> cache_home();

// True if colours and cursor movement are unwanted on a terminal: NO_COLOR set, or TERM=dumb.
bool plain_terminal();

}  // namespace millrace::env
