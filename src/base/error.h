// Errors as values: Result<T> for everything that depends on files, configurations and requests.
//
// An error message is one line and says what was found, what was expected, where, and what to do.
// MR_CHECK (check.h) is for our own bugs only.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <utility>

namespace millrace {

// One-line, user-facing error text. Owns its message.
struct Error {
  std::string message;
};

template <typename T = void>
using Result = std::expected<T, Error>;

// Builds the error side of a Result from a fmt format: `return fail("{}: no such file", path);`
template <typename... Args>
std::unexpected<Error> fail(fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{fmt::format(format, std::forward<Args>(args)...)});
}

// Prefixes an error with where it happened: "model.safetensors: <message>".
inline std::unexpected<Error> fail_in(std::string_view where, const Error& error) {
  return std::unexpected(Error{fmt::format("{}: {}", where, error.message)});
}

}  // namespace millrace

#define MR_CONCAT_INNER(a, b) a##b
#define MR_CONCAT(a, b) MR_CONCAT_INNER(a, b)

// Returns the error of a Result<void> expression to the caller, if it holds one.
#define MR_TRY(expr)                                                        \
  do {                                                                      \
    auto&& mr_result_ = (expr);                                             \
    if (!mr_result_) return std::unexpected(std::move(mr_result_).error()); \
  } while (0)

// Declares `decl` from the value of a Result expression, or returns its error to the caller:
// MR_ASSIGN(auto file, MappedFile::open(path));
#define MR_ASSIGN(decl, expr) MR_ASSIGN_IMPL(MR_CONCAT(mr_result_, __LINE__), decl, expr)
#define MR_ASSIGN_IMPL(name, decl, expr)                      \
  auto name = (expr);                                         \
  if (!name) return std::unexpected(std::move(name).error()); \
  decl = std::move(*name)
