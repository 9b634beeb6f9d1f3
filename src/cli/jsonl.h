// Rows of JSON, one a line: the input and output of commands that work through test data.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace millrace {

// Reads `path` ("-": standard input) line by line and hands each row to `row`. Lines end with LF;
// empty ones are skipped. Errors name file and line; the first one ends the reading.
Result<> for_each_row(const std::string& path,
                      const std::function<Result<>(const nlohmann::ordered_json&)>& row);

// The same, and tells each row's line, counted from 1.
Result<> for_each_numbered_row(
    const std::string& path,
    const std::function<Result<>(int64_t line, const nlohmann::ordered_json&)>& row);

// Writes one row to standard output; errors as write_stdout().
Result<> print_row(const nlohmann::ordered_json& row);

// The text field `key`. Error: missing or no string.
Result<std::string> text_field(const nlohmann::ordered_json& row, const char* key);

}  // namespace millrace
