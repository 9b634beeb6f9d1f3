// How `millrace eval` judges answers: the number that a worked answer ends in, and what a count of
// right answers says of the accuracy behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// `text` without white space at both ends.
std::string_view trim(std::string_view text);

// The number that a worked answer gives: the first one that directly follows a "####", else the
// last one in the text; nothing if there is none. Commas between groups of three digits and a "$"
// before the number are dropped. The number is in one form, so that equal numbers are equal texts:
// "$1,080.50" is "1080.5", "5.0" is "5", "-0" is "0". Of any length.
std::optional<std::string> final_number(std::string_view text);

struct Interval {
  double low = 0;
  double high = 1;
};

// The 95% confidence interval of a share of which `correct` of `total` were seen (Wilson 1927,
// score interval without continuity correction). Of nothing: 0 to 1.
Interval wilson_interval(int64_t correct, int64_t total);

}  // namespace millrace
