#include "io/json.h"

#include <algorithm>
#include <cstddef>

#include "io/mapped_file.h"

namespace millrace {
namespace {

struct Position {
  int64_t line = 1;
  int64_t column = 1;
};

// The position of the byte before `offset` (the last that the parser read).
Position position_of(std::string_view text, size_t offset) {
  Position position;
  const size_t end = offset == 0 ? 0 : std::min(offset - 1, text.size());
  for (size_t i = 0; i < end; ++i) {
    if (text[i] == '\n') {
      ++position.line;
      position.column = 1;
    } else {
      ++position.column;
    }
  }
  return position;
}

// The offset of the first bracket that nests deeper than allowed, or npos. Looks at brackets
// outside of strings only; a text that is no JSON is the parser's business.
size_t too_deep_at(std::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > max_depth) return i;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return std::string_view::npos;
}

template <typename Json>
Result<Json> parse(std::string_view text, int max_depth) {
  const size_t deep = too_deep_at(text, max_depth);
  if (deep != std::string_view::npos) {
    const Position at = position_of(text, deep + 1);
    return fail("line {}, column {}: nested deeper than {} levels", at.line, at.column, max_depth);
  }
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    const Position at = position_of(text, error.byte);
    return fail("line {}, column {}: not valid JSON", at.line, at.column);
  } catch (const nlohmann::json::exception&) {
    return fail("not valid JSON: a number is out of range");
  }
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, int max_depth) {
  return parse<nlohmann::json>(text, max_depth);
}

Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, int max_depth) {
  return parse<nlohmann::ordered_json>(text, max_depth);
}

Result<nlohmann::json> read_json_file(const std::string& path, int max_depth) {
  MR_ASSIGN(const MappedFile file, MappedFile::open(path));
  if (file.size() > kMaxJsonFileBytes) {
    return fail("{}: {} bytes of JSON, at most {} are read", path, file.size(), kMaxJsonFileBytes);
  }
  const auto bytes = file.bytes();
  auto json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, max_depth);
  if (!json) return fail_in(path, json.error());
  return json;
}

}  // namespace millrace
