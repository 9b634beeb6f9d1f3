#include "config/gguf_metadata.h"

#include <limits>
#include <utility>

#include "base/describe_json.h"

namespace millrace {
namespace {

// Overload set for std::visit.
template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

std::unexpected<Error> wrong_type(std::string_view key, const GgufValue& found,
                                  std::string_view expected) {
  return fail("metadata {}: found {}, expected {}", key, describe(found), expected);
}

std::unexpected<Error> missing(std::string_view key, std::string_view expected) {
  return fail("metadata {}: missing, expected {}", key, expected);
}

std::optional<int64_t> as_int(const GgufValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  const auto* number = std::get_if<uint64_t>(&value);
  if (number != nullptr && *number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return static_cast<int64_t>(*number);
  }
  return std::nullopt;
}

std::optional<double> as_float(const GgufValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto number = as_int(value)) return static_cast<double>(*number);
  return std::nullopt;
}

// An optional getter's result as a required one's.
template <typename T>
Result<T> require(Result<std::optional<T>> found, std::string_view key, std::string_view expected) {
  if (!found) return std::unexpected(std::move(found).error());
  if (!*found) return missing(key, expected);
  return std::move(**found);
}

}  // namespace

int64_t GgufArray::size() const {
  return std::visit([](const auto& list) { return static_cast<int64_t>(list.size()); }, values);
}

std::string describe(const GgufValue& value) {
  return std::visit(Overloaded{[](int64_t number) { return fmt::format("integer {}", number); },
                               [](uint64_t number) { return fmt::format("integer {}", number); },
                               [](double number) { return fmt::format("number {}", number); },
                               [](bool flag) { return std::string(flag ? "true" : "false"); },
                               [](const std::string& text) {
                                 return fmt::format("string \"{}\"", one_short_line(text));
                               },
                               [](const GgufArray& array) {
                                 return fmt::format("an array of {}", array.size());
                               }},
                    value);
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

bool GgufMetadata::insert(std::string key, GgufValue value) {
  const auto [place, inserted] = values_.try_emplace(std::move(key));
  if (inserted) place->second = std::move(value);
  return inserted;
}

Result<std::optional<std::string>> GgufMetadata::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(value)) return *text;
  return wrong_type(key, *value, "a string");
}

Result<std::optional<int64_t>> GgufMetadata::find_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto number = as_int(*value)) return number;
  return wrong_type(key, *value, "an integer");
}

Result<std::optional<double>> GgufMetadata::find_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto number = as_float(*value)) return number;
  return wrong_type(key, *value, "a number");
}

Result<std::optional<bool>> GgufMetadata::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  return wrong_type(key, *value, "true or false");
}

Result<std::string> GgufMetadata::get_string(std::string_view key) const {
  return require(find_string(key), key, "a string");
}

Result<int64_t> GgufMetadata::get_int(std::string_view key) const {
  return require(find_int(key), key, "an integer");
}

Result<const std::vector<std::string>*> GgufMetadata::get_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key, "an array of strings");
  if (const auto* array = std::get_if<GgufArray>(value)) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&array->values)) return list;
  }
  return wrong_type(key, *value, "an array of strings");
}

Result<std::vector<int64_t>> GgufMetadata::get_ints(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key, "an array of integers");
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr) return wrong_type(key, *value, "an array of integers");
  if (const auto* list = std::get_if<std::vector<int64_t>>(&array->values)) return *list;
  const auto* list = std::get_if<std::vector<uint64_t>>(&array->values);
  if (list == nullptr) return wrong_type(key, *value, "an array of integers");
  std::vector<int64_t> numbers;
  numbers.reserve(list->size());
  for (const uint64_t item : *list) {
    const auto number = as_int(item);
    if (!number) return fail("metadata {}: {} is too large", key, item);
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<double>> GgufMetadata::get_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key, "an array of numbers");
  if (const auto* array = std::get_if<GgufArray>(value)) {
    if (const auto* list = std::get_if<std::vector<double>>(&array->values)) return *list;
  }
  return wrong_type(key, *value, "an array of numbers");
}

}  // namespace millrace
