#include "text/utf8_stream.h"

#include <cstddef>
#include <cstdint>

namespace millrace {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What a character's first byte promises: its length and the range of its second byte (Unicode,
// table 3-7). Length 0: no character begins so.
struct Lead {
  int length;
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// How many bytes at `text[at]` belong together: a character, or a maximal part of one.
struct Unit {
  size_t size;
  bool complete;    // a whole character
  bool unfinished;  // the text ends inside what may become a character
};

Unit unit_at(std::string_view text, size_t at) {
  const Lead lead = lead_of(static_cast<uint8_t>(text[at]));
  if (lead.length == 0) return {1, false, false};
  size_t size = 1;
  while (size < static_cast<size_t>(lead.length)) {
    if (at + size == text.size()) return {size, false, true};
    const uint8_t byte = static_cast<uint8_t>(text[at + size]);
    const uint8_t low = size == 1 ? lead.second_low : 0x80;
    const uint8_t high = size == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {size, false, false};
    ++size;
  }
  return {size, true, false};
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    const Unit unit = unit_at(held_, at);
    if (unit.unfinished) break;
    out += unit.complete ? std::string_view(held_).substr(at, unit.size) : kReplacement;
    at += unit.size;
  }
  held_.erase(0, at);
  return out;
}

std::string Utf8Stream::flush() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacement);
}

}  // namespace millrace
