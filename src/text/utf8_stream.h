// Bytes in pieces -> whole characters, as early as they can be known.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// Bytes that can never become a character turn into U+FFFD, one for each maximal prefix of a
// character (Unicode's recommended practice, as in Rust's from_utf8_lossy). The joined results of
// push() and flush() equal the conversion of all bytes at once.
class Utf8Stream {
 public:
  // The text that is certain after these bytes; an unfinished character (at most 3 bytes) is held.
  std::string push(std::string_view bytes);
  // Ends the text: an unfinished character becomes U+FFFD. The stream is empty again afterwards.
  std::string flush();

 private:
  std::string held_;
};

}  // namespace millrace
