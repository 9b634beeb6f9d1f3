#include "io/gguf_reader.h"

#include <utility>
#include <vector>

namespace millrace {
namespace {

constexpr size_t kMaxNameBytes = 1024;
constexpr int kMaxArrayDepth = 4;
// Far above what models hold (a vocabulary has some 10^5 entries): keeps a damaged length in a
// large file from taking absurd memory.
constexpr uint64_t kMaxStringBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxArrayItems = uint64_t{1} << 26;

// Types of metadata values, as stored.
enum ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Wraps a number that was read as a value.
template <typename Kept, typename Stored>
Result<GgufValue> as_value(Result<Stored> stored) {
  if (!stored) return std::unexpected(std::move(stored).error());
  return GgufValue(static_cast<Kept>(*stored));
}

Result<bool> as_bool(uint8_t stored) {
  if (stored > 1) return fail("found {} where true (1) or false (0) is expected", stored);
  return stored == 1;
}

}  // namespace

std::unexpected<Error> GgufReader::cut_off() const {
  return fail("the file ends at byte {}, within its header: it is cut off", bytes_.size());
}

Result<std::string> GgufReader::string() {
  MR_ASSIGN(const uint64_t length, number<uint64_t>());
  if (length > static_cast<uint64_t>(remaining())) {
    return fail("a string of {} bytes at byte {} is longer than the file", length, position_);
  }
  if (length > kMaxStringBytes) {
    return fail("a string of {} bytes at byte {}; at most {} are read", length, position_,
                kMaxStringBytes);
  }
  std::string text(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
  position_ += length;
  return text;
}

Result<std::string> GgufReader::name(std::string_view what) {
  const size_t begin = position_;
  MR_ASSIGN(std::string text, string());
  bool valid = !text.empty() && text.size() <= kMaxNameBytes;
  for (const char c : text) valid = valid && static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  if (!valid) return fail("{} at byte {} is not valid: the file is damaged", what, begin);
  return text;
}

Result<GgufValue> GgufReader::value() {
  MR_ASSIGN(const uint32_t type, number<uint32_t>());
  return value_of(type);
}

Result<GgufValue> GgufReader::value_of(uint32_t type) {
  switch (type) {
    case kUint8:
      return as_value<uint64_t>(number<uint8_t>());
    case kInt8:
      return as_value<int64_t>(number<int8_t>());
    case kUint16:
      return as_value<uint64_t>(number<uint16_t>());
    case kInt16:
      return as_value<int64_t>(number<int16_t>());
    case kUint32:
      return as_value<uint64_t>(number<uint32_t>());
    case kInt32:
      return as_value<int64_t>(number<int32_t>());
    case kUint64:
      return as_value<uint64_t>(number<uint64_t>());
    case kInt64:
      return as_value<int64_t>(number<int64_t>());
    case kFloat32:
      return as_value<double>(number<float>());
    case kFloat64:
      return as_value<double>(number<double>());
    case kBool: {
      MR_ASSIGN(const uint8_t stored, number<uint8_t>());
      MR_ASSIGN(const bool flag, as_bool(stored));
      return GgufValue(flag);
    }
    case kString: {
      MR_ASSIGN(std::string text, string());
      return GgufValue(std::move(text));
    }
    case kArray: {
      MR_ASSIGN(GgufArray list, array(1));
      return GgufValue(std::move(list));
    }
    default:
      return fail("value type {} is not known", type);
  }
}

template <typename Stored, typename Kept>
Result<GgufArray> GgufReader::numbers(uint64_t count) {
  if (count > static_cast<uint64_t>(remaining()) / sizeof(Stored)) return cut_off();
  std::vector<Kept> list(count);
  for (Kept& item : list) {
    Stored stored;
    std::memcpy(&stored, bytes_.data() + position_, sizeof(Stored));
    position_ += sizeof(Stored);
    item = static_cast<Kept>(stored);
  }
  return GgufArray{std::move(list)};
}

Result<GgufArray> GgufReader::bools(uint64_t count) {
  if (count > static_cast<uint64_t>(remaining())) return cut_off();
  std::vector<bool> list;
  list.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    MR_ASSIGN(const uint8_t stored, number<uint8_t>());
    MR_ASSIGN(const bool flag, as_bool(stored));
    list.push_back(flag);
  }
  return GgufArray{std::move(list)};
}

Result<GgufArray> GgufReader::array(int depth) {
  if (depth > kMaxArrayDepth) return fail("arrays nest deeper than {} levels", kMaxArrayDepth);
  MR_ASSIGN(const uint32_t type, number<uint32_t>());
  MR_ASSIGN(const uint64_t count, number<uint64_t>());
  if (count > kMaxArrayItems - array_items_) {
    return fail("arrays of more than {} items in all; expected a vocabulary at most",
                kMaxArrayItems);
  }
  array_items_ += count;
  switch (type) {
    case kUint8:
      return numbers<uint8_t, uint64_t>(count);
    case kInt8:
      return numbers<int8_t, int64_t>(count);
    case kUint16:
      return numbers<uint16_t, uint64_t>(count);
    case kInt16:
      return numbers<int16_t, int64_t>(count);
    case kUint32:
      return numbers<uint32_t, uint64_t>(count);
    case kInt32:
      return numbers<int32_t, int64_t>(count);
    case kUint64:
      return numbers<uint64_t, uint64_t>(count);
    case kInt64:
      return numbers<int64_t, int64_t>(count);
    case kFloat32:
      return numbers<float, double>(count);
    case kFloat64:
      return numbers<double, double>(count);
    case kBool:
      return bools(count);
    case kString:
    case kArray:
      break;
    default:
      return fail("array of type {} is not known", type);
  }
  // A string takes at least 8 bytes (its length), an array 12 (type and length).
  if (count > static_cast<uint64_t>(remaining()) / 8) return cut_off();
  if (type == kString) {
    std::vector<std::string> list;
    list.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      MR_ASSIGN(std::string text, string());
      list.push_back(std::move(text));
    }
    return GgufArray{std::move(list)};
  }
  std::vector<GgufArray> list;
  for (uint64_t i = 0; i < count; ++i) {
    MR_ASSIGN(GgufArray inner, array(depth + 1));
    list.push_back(std::move(inner));
  }
  return GgufArray{std::move(list)};
}

}  // namespace millrace
