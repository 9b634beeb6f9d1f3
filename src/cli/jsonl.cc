#include "cli/jsonl.h"

#include <fstream>
#include <iostream>
#include <istream>

#include "cli/output.h"
#include "io/json.h"

namespace millrace {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxDepth = 100;

Result<ordered_json> parse_row(const std::string& line) {
  MR_ASSIGN(ordered_json row, parse_ordered_json(line, kMaxDepth));
  if (!row.is_object()) return fail("a {}; expected an object", row.type_name());
  return row;
}

}  // namespace

Result<> for_each_row(const std::string& path,
                      const std::function<Result<>(const ordered_json&)>& row) {
  return for_each_numbered_row(path,
                               [&](int64_t, const ordered_json& parsed) { return row(parsed); });
}

Result<> for_each_numbered_row(const std::string& path,
                               const std::function<Result<>(int64_t, const ordered_json&)>& row) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) return fail("{}: cannot be read", path);
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    auto parsed = parse_row(line);
    const auto done = parsed ? row(number, *parsed) : Result<>(std::unexpected(parsed.error()));
    if (!done) return fail("{}, line {}: {}", path, number, done.error().message);
  }
  if (in.bad()) return fail("{}: reading failed", path);
  return {};
}

Result<> print_row(const ordered_json& row) {
  return write_stdout(row.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

Result<std::string> text_field(const ordered_json& row, const char* key) {
  if (!row.contains(key)) return fail("the row has no \"{}\"", key);
  if (!row[key].is_string()) {
    return fail("\"{}\" is a {}; expected a string", key, row[key].type_name());
  }
  return row[key].get<std::string>();
}

}  // namespace millrace
