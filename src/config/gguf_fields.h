// Reads GGUF metadata of one architecture: keys "<architecture>.<name>", with ranges.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "config/gguf_metadata.h"

namespace millrace {

// Keys below "<architecture>."; the metadata must outlive this.
class ArchFields {
 public:
  ArchFields(const GgufMetadata& metadata, std::string arch)
      : metadata_(metadata), arch_(std::move(arch)) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  bool contains(std::string_view name) const { return metadata_.contains(key(name)); }

  Result<std::optional<int>> find_size(std::string_view name) const {
    MR_ASSIGN(const auto value, metadata_.find_int(key(name)));
    if (!value) return std::nullopt;
    if (*value < 1 || *value > kMostSize) return out_of_range(name, *value, "1 to 16777216");
    return static_cast<int>(*value);
  }
  Result<int> get_size(std::string_view name) const {
    MR_ASSIGN(const auto value, find_size(name));
    if (value) return *value;
    return missing(name, "an integer");
  }
  // Zero or more; what a missing key means is the caller's.
  Result<std::optional<int>> find_count(std::string_view name, int most) const {
    MR_ASSIGN(const auto value, metadata_.find_int(key(name)));
    if (!value) return std::nullopt;
    if (*value < 0 || *value > most) {
      return out_of_range(name, *value, fmt::format("0 to {}", most));
    }
    return static_cast<int>(*value);
  }
  Result<std::optional<double>> find_positive(std::string_view name, double most) const {
    MR_ASSIGN(const auto value, metadata_.find_float(key(name)));
    if (!value) return std::nullopt;
    if (!(*value > 0 && *value <= most)) {
      return out_of_range(name, *value, fmt::format("a number above 0 and up to {:g}", most));
    }
    return *value;
  }

  template <typename T>
  std::unexpected<Error> out_of_range(std::string_view name, T found,
                                      std::string_view expected) const {
    return fail("metadata {}: found {}, expected {}", key(name), found, expected);
  }

  std::unexpected<Error> missing(std::string_view name, std::string_view expected) const {
    return fail("metadata {}: missing, expected {}", key(name), expected);
  }

  const GgufMetadata& metadata() const { return metadata_; }
  const std::string& arch() const { return arch_; }

 private:
  static constexpr int64_t kMostSize = int64_t{1} << 24;
  const GgufMetadata& metadata_;
  std::string arch_;
};

}  // namespace millrace
