// Reads the pieces of a GGUF header from bytes, every length checked against what is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "config/gguf_metadata.h"

namespace millrace {

// Least bytes of a metadata pair: length of the key, type, one byte of value.
inline constexpr int64_t kLeastPairBytes = 8 + 4 + 1;

class GgufReader {
 public:
  explicit GgufReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  int64_t position() const { return static_cast<int64_t>(position_); }
  int64_t remaining() const { return static_cast<int64_t>(bytes_.size() - position_); }

  // A little-endian number.
  template <typename T>
  Result<T> number() {
    if (bytes_.size() - position_ < sizeof(T)) return cut_off();
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // A string that names something: not empty, at most 1024 bytes, no control characters.
  Result<std::string> name(std::string_view what);

  // A typed value: its type, then its contents.
  Result<GgufValue> value();

 private:
  std::unexpected<Error> cut_off() const;
  Result<std::string> string();
  Result<GgufValue> value_of(uint32_t type);
  Result<GgufArray> array(int depth);
  template <typename Stored, typename Kept>
  Result<GgufArray> numbers(uint64_t count);
  Result<GgufArray> bools(uint64_t count);

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  uint64_t array_items_ = 0;  // in all arrays so far
};

}  // namespace millrace
