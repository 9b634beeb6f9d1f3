// JSON with bounds: depth and size are limited, errors are one line with the position.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace millrace {

inline constexpr int kMaxJsonDepth = 64;
inline constexpr int64_t kMaxJsonFileBytes = int64_t{256} << 20;

// Parses text. Errors give line and column; nesting beyond `max_depth` is an error. Numbers that no
// type holds, duplicate keys (the later wins) and invalid UTF-8 follow nlohmann::json.
Result<nlohmann::json> parse_json(std::string_view text, int max_depth = kMaxJsonDepth);

// The same, with the fields of objects in the order of the text.
Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text,
                                                  int max_depth = kMaxJsonDepth);

// Reads and parses a file; errors name it.
Result<nlohmann::json> read_json_file(const std::string& path, int max_depth = kMaxJsonDepth);

}  // namespace millrace
