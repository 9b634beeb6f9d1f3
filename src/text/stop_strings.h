// Finds stop strings in streamed text, holding back what may still become one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// The stop string that is complete first ends the text; of two complete at the same character, the
// longer. The text shown does not depend on how it was cut into deltas.
class StopMatcher {
 public:
  struct Shown {
    std::string text;  // to show now
    std::optional<std::string>
        stop;  // set once a stop string is found; it and what follows are not shown
  };

  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  Shown push(std::string_view delta);
  // The end of the text without a stop: what was held back.
  std::string flush();

  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  bool stopped_ = false;
  std::string held_;
};

}  // namespace millrace
