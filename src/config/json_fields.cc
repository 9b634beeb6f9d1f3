#include "config/json_fields.h"

#include <cmath>
#include <limits>

#include "base/describe_json.h"

namespace millrace {
namespace {

std::optional<int64_t> as_int(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

bool says_nothing(const nlohmann::json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || value.empty();
}

}  // namespace

std::unexpected<Error> JsonFields::wrong(std::string_view name, const nlohmann::json& found,
                                         std::string_view expected) const {
  return fail("field {}{}: found {}, expected {}", prefix_, name, describe(found), expected);
}

const nlohmann::json* JsonFields::find(std::string_view name) {
  read_.emplace(name);
  const auto it = object_.find(name);
  if (it == object_.end() || it->is_null()) return nullptr;
  return &*it;
}

Result<std::optional<int64_t>> JsonFields::find_int(std::string_view name, Range<int64_t> range) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = as_int(*value);
  if (!number || *number < range.least || *number > range.most) {
    return wrong(name, *value, fmt::format("an integer from {} to {}", range.least, range.most));
  }
  return *number;
}

Result<std::optional<double>> JsonFields::find_number(std::string_view name, Range<double> range) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= range.least && number <= range.most)) {
    return wrong(name, *value, fmt::format("a number from {:g} to {:g}", range.least, range.most));
  }
  return number;
}

Result<std::optional<bool>> JsonFields::find_bool(std::string_view name) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return wrong(name, *value, "true or false");
  return value->get<bool>();
}

Result<std::optional<std::string>> JsonFields::find_string(std::string_view name) {
  const nlohmann::json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return wrong(name, *value, "a string");
  return value->get<std::string>();
}

std::unexpected<Error> JsonFields::missing(std::string_view name, std::string_view expected) const {
  return fail("field {}{}: missing, expected {}", prefix_, name, expected);
}

Result<int64_t> JsonFields::get_int(std::string_view name, Range<int64_t> range) {
  MR_ASSIGN(const auto number, find_int(name, range));
  if (number) return *number;
  return missing(name, fmt::format("an integer from {} to {}", range.least, range.most));
}

Result<double> JsonFields::get_number(std::string_view name, Range<double> range) {
  MR_ASSIGN(const auto number, find_number(name, range));
  if (number) return *number;
  return missing(name, fmt::format("a number from {:g} to {:g}", range.least, range.most));
}

Result<bool> JsonFields::get_bool(std::string_view name) {
  MR_ASSIGN(const auto flag, find_bool(name));
  if (flag) return *flag;
  return missing(name, "true or false");
}

Result<std::optional<int64_t>> JsonFields::get_int_or_null(std::string_view name,
                                                           Range<int64_t> range) {
  if (object_.contains(name)) return find_int(name, range);
  return missing(name, fmt::format("null or an integer from {} to {}", range.least, range.most));
}

Result<std::vector<std::string>> JsonFields::find_strings(std::string_view name) {
  std::vector<std::string> strings;
  const nlohmann::json* list = find(name);
  if (list == nullptr) return strings;
  if (!list->is_array()) return wrong(name, *list, "an array of strings");
  for (const auto& item : *list) {
    if (!item.is_string()) return wrong(name, item, "a string in each place");
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

void JsonFields::ignore(std::span<const std::string_view> names) {
  for (const auto name : names) read_.emplace(name);
}

Result<> JsonFields::check_rest(std::span<const std::string_view> ignored_prefixes) const {
  for (const auto& [name, value] : object_.items()) {
    if (read_.contains(name) || says_nothing(value)) continue;
    bool ignored = false;
    for (const auto prefix : ignored_prefixes) ignored = ignored || name.starts_with(prefix);
    if (ignored) continue;
    return fail(
        "field {}{}: found {}; this field is not understood and may change what the model "
        "computes; remove it if it does not",
        prefix_, one_short_line(name), describe(value));
  }
  return {};
}

}  // namespace millrace
