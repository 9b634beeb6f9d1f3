// The key-value part of a GGUF file as typed values, with getters that say what is wrong.
// Reading the file is io/gguf.h; here is only what configuration and tokenizer need to look at.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace millrace {

struct GgufArray;

// Integers are widened to 64 bits, float32 to double; arrays are homogeneous and may nest.
using GgufValue = std::variant<int64_t, uint64_t, double, bool, std::string, GgufArray>;

struct GgufArray {
  std::variant<std::vector<int64_t>, std::vector<uint64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string>, std::vector<GgufArray>>
      values;
  int64_t size() const;
};

// A value in words, for messages: "string \"abc\"", "integer 7", "array of 3 integers".
std::string describe(const GgufValue& value);

class GgufMetadata {
 public:
  using Map = std::map<std::string, GgufValue, std::less<>>;

  const Map& values() const { return values_; }
  bool contains(std::string_view key) const { return values_.find(key) != values_.end(); }
  const GgufValue* find(std::string_view key) const;

  // False if the key is there already.
  bool insert(std::string key, GgufValue value);

  // Required: a missing key or another type is an error that names the key, what was found and
  // what was expected. Integers are taken as floats too, not the other way round.
  Result<std::string> get_string(std::string_view key) const;
  Result<int64_t> get_int(std::string_view key) const;
  // The pointers stay valid as long as this object.
  Result<const std::vector<std::string>*> get_strings(std::string_view key) const;
  Result<std::vector<int64_t>> get_ints(std::string_view key) const;
  Result<std::vector<double>> get_floats(std::string_view key) const;

  // Optional: nothing if the key is missing; another type is an error.
  Result<std::optional<std::string>> find_string(std::string_view key) const;
  Result<std::optional<int64_t>> find_int(std::string_view key) const;
  Result<std::optional<double>> find_float(std::string_view key) const;
  Result<std::optional<bool>> find_bool(std::string_view key) const;

 private:
  Map values_;
};

}  // namespace millrace
