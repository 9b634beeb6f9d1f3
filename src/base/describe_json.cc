#include "base/describe_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

constexpr size_t kMaxDescribed = 40;

std::string one_short_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  if (text.size() > kMaxDescribed) text = text.substr(0, kMaxDescribed - 3) + "...";
  return text;
}

}  // namespace

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
