// MR_CHECK: stops the process on a bug of our own (a broken invariant), with file and line.
// Never for input: hostile files, configurations and requests are Result errors (error.h).
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace millrace::internal {

[[noreturn]] inline void check_failed(const char* file, int line, const char* expr,
                                      const std::string& message) {
  std::fprintf(stderr, "%s:%d: internal error: check `%s` failed%s%s\n", file, line, expr,
               message.empty() ? "" : ": ", message.c_str());
  std::abort();
}

}  // namespace millrace::internal

#define MR_CHECK(cond, ...)                                              \
  do {                                                                   \
    if (!(cond)) [[unlikely]]                                            \
      ::millrace::internal::check_failed(__FILE__, __LINE__, #cond,      \
                                         ::fmt::format("" __VA_ARGS__)); \
  } while (0)
