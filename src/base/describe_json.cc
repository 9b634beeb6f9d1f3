#include "base/describe_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

constexpr size_t kMaxShown = 60;

}  // namespace

std::string one_short_line(std::string_view text) {
  std::string shown(text.substr(0, kMaxShown));
  if (shown.size() < text.size()) {
    const auto is_continuation = [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
    };
    if (is_continuation(text[shown.size()])) {
      while (!shown.empty() && is_continuation(shown.back())) shown.pop_back();
      if (!shown.empty()) shown.pop_back();
    }
    shown += "...";
  }
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return shown;
}

std::string describe(const nlohmann::json& value) {
  using Type = nlohmann::json::value_t;
  switch (value.type()) {
    case Type::null:
      return "null";
    case Type::object:
      return fmt::format("an object of {}", value.size());
    case Type::array:
      return fmt::format("an array of {}", value.size());
    case Type::string:
      return fmt::format("\"{}\"", one_short_line(value.get_ref<const std::string&>()));
    default:
      return value.dump();
  }
}

}  // namespace millrace
