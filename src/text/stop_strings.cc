#include "text/stop_strings.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace millrace {
namespace {

// Length of the longest end of `text` that begins `stop` without being all of it.
size_t beginning_at_end(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

StopMatcher::Shown StopMatcher::push(std::string_view delta) {
  if (stopped_) return {};
  held_ += delta;

  const std::string* first = nullptr;
  size_t first_end = 0;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (!first || end < first_end || (end == first_end && stop.size() > first->size())) {
      first = &stop;
      first_end = end;
    }
  }
  if (first) {
    stopped_ = true;
    const size_t shown = first_end - first->size();
    return {std::exchange(held_, {}).substr(0, shown), *first};
  }

  size_t keep = 0;
  for (const std::string& stop : stops_) keep = std::max(keep, beginning_at_end(held_, stop));
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, text.size());
  return {std::move(text), std::nullopt};
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

}  // namespace millrace
