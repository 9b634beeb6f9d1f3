#include "cli/eval_score.h"

#include <cmath>

namespace millrace {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The end of the digits that begin at `at`.
size_t digits_end(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// A number found in a text: its sign and digits, and where it ends.
struct Found {
  bool negative = false;
  std::string whole;
  std::string fraction;
  size_t end = 0;

  std::string text() const {
    const size_t first = whole.find_first_not_of('0');
    std::string out = first == std::string::npos ? "0" : whole.substr(first);
    const size_t last = fraction.find_last_not_of('0');
    if (last != std::string::npos) out += "." + fraction.substr(0, last + 1);
    return negative && out != "0" ? "-" + out : out;
  }
};

// Reads the digits that begin at `at`, which may be the point of ".5".
std::optional<Found> read_digits(std::string_view text, size_t at) {
  Found found;
  size_t end = digits_end(text, at);
  found.whole = text.substr(at, end - at);
  // A comma belongs to the number only where it parts groups of three digits: "1,080", not "1, 2".
  if (!found.whole.empty() && found.whole.size() <= 3) {
    while (end < text.size() && text[end] == ',' && digits_end(text, end + 1) == end + 4) {
      found.whole += text.substr(end + 1, 3);
      end += 4;
    }
  }
  if (end < text.size() && text[end] == '.') {
    const size_t last = digits_end(text, end + 1);
    found.fraction = text.substr(end + 1, last - end - 1);
    if (!found.fraction.empty()) end = last;
  }
  if (found.whole.empty() && found.fraction.empty()) return std::nullopt;
  found.end = end;
  return found;
}

// The number that begins exactly at `at`, with its sign and "$" in either order.
std::optional<Found> read_number(std::string_view text, size_t at) {
  bool negative = false;
  bool dollar = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '-' && !negative) {
      negative = true;
    } else if (text[at] == '$' && !dollar) {
      dollar = true;
    } else {
      break;
    }
  }
  auto found = read_digits(text, at);
  if (found) found->negative = negative;
  return found;
}

// Whether a "-" at `at` is a sign and not a subtraction or a hyphen ("24-6", "a-4").
bool is_sign(std::string_view text, size_t at) {
  if (at == 0) return true;
  const char before = text[at - 1];
  return !is_digit(before) && !is_letter(before) && before != ')';
}

std::optional<std::string> last_number(std::string_view text) {
  std::optional<std::string> last;
  for (size_t at = 0; at < text.size();) {
    const bool skipped_minus = text[at] == '-' && !is_sign(text, at);
    const auto found = skipped_minus ? std::nullopt : read_number(text, at);
    if (found) last = found->text();
    at = found ? found->end : at + 1;
  }
  return last;
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::optional<std::string> final_number(std::string_view text) {
  constexpr std::string_view kMark = "####";
  for (size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at + 1)) {
    const size_t begin = text.find_first_not_of(" \t", at + kMark.size());
    if (begin == std::string_view::npos) break;
    if (const auto found = read_number(text, begin)) return found->text();
  }
  return last_number(text);
}

Interval wilson_interval(int64_t correct, int64_t total) {
  if (total <= 0) return {};
  constexpr double kZ = 1.959963984540054;  // the normal distribution's 97.5% point
  const auto n = static_cast<double>(total);
  const double share = static_cast<double>(correct) / n;
  const double spread = kZ * std::sqrt(share * (1 - share) / n + kZ * kZ / (4 * n * n));
  const double centre = share + kZ * kZ / (2 * n);
  const double scale = 1 + kZ * kZ / n;
  Interval interval = {(centre - spread) / scale, (centre + spread) / scale};
  if (correct == 0) interval.low = 0;  // exactly, where the formula rounds
  if (correct == total) interval.high = 1;
  return interval;
}

}  // namespace millrace
