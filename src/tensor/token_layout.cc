#include "tensor/token_layout.h"

#include <fmt/format.h>

namespace millrace {

std::string describe(const TokenLayout& layout) {
  const char* placement =
      layout.placement == TokenPlacement::kReplicated ? "replicated" : "sharded";
  if (layout.begin == 0 && layout.end == layout.padded && layout.count == layout.padded) {
    return fmt::format("{}, {} tokens", placement, layout.count);
  }
  return fmt::format("{}, tokens {} to {} of {} (padded to {})", placement, layout.begin,
                     layout.end, layout.count, layout.padded);
}

}  // namespace millrace
