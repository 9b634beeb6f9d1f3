#include "fuzz_check.h"

#include <functional>

#include "base/check.h"

namespace millrace::fuzz {
namespace {

constexpr size_t kMaxMessage = 4000;

}  // namespace

void check_error(const Error& error) {
  MR_CHECK(!error.message.empty() && error.message.size() <= kMaxMessage, "{} bytes of message",
           error.message.size());
  MR_CHECK(error.message.find('\n') == std::string::npos, "more than one line: {}", error.message);
}

uint64_t touch(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (const std::byte b : bytes) sum += static_cast<uint64_t>(b);
  volatile uint64_t keep = sum;
  return keep;
}

void check_within(std::span<const std::byte> view, std::span<const std::byte> input) {
  if (view.empty()) return;
  const std::less_equal<const std::byte*> before;
  MR_CHECK(before(input.data(), view.data()) &&
           before(view.data() + view.size(), input.data() + input.size()));
}

}  // namespace millrace::fuzz
