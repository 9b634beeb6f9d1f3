// Reads the fields of a JSON object with checks, and remembers which were read, so that a field
// nobody understood can be found.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace millrace {

// Bounds of a number, both inclusive.
template <typename T>
struct Range {
  T least;
  T most;
};

// A null value counts as absent throughout. Errors name the field, what was found and what was
// expected. The object must outlive this.
class JsonFields {
 public:
  // `prefix` is put before names in messages ("rope_parameters.").
  explicit JsonFields(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // The value, or null if absent. Marks the field as read.
  const nlohmann::json* find(std::string_view name);

  Result<std::optional<int64_t>> find_int(std::string_view name, Range<int64_t> range);
  Result<std::optional<double>> find_number(std::string_view name, Range<double> range);
  Result<std::optional<bool>> find_bool(std::string_view name);
  Result<std::optional<std::string>> find_string(std::string_view name);

  // Required: an error if the field is absent.
  Result<int64_t> get_int(std::string_view name, Range<int64_t> range);
  Result<double> get_number(std::string_view name, Range<double> range);
  Result<bool> get_bool(std::string_view name);

  // Null is a value here ("q_lora_rank": null is none); an absent field is an error.
  Result<std::optional<int64_t>> get_int_or_null(std::string_view name, Range<int64_t> range);

  // The strings of an array; empty if absent.
  Result<std::vector<std::string>> find_strings(std::string_view name);

  // Marks fields as harmless: what they say does not change the arithmetic.
  void ignore(std::span<const std::string_view> names);

  // Error if a field was neither read nor ignored, unless it is null, false or empty, or its name
  // begins with one of `ignored_prefixes`.
  Result<> check_rest(std::span<const std::string_view> ignored_prefixes) const;

  std::unexpected<Error> missing(std::string_view name, std::string_view expected) const;
  std::unexpected<Error> wrong(std::string_view name, const nlohmann::json& found,
                               std::string_view expected) const;

 private:
  const nlohmann::json& object_;
  std::string prefix_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace millrace
