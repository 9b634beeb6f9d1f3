#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace millrace {

Result<> write_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      return fail("cannot write to the standard output: {}", std::strerror(errno));
    }
  }
  return {};
}

void print_error(const Error& error) { log::error("{}", error.message); }

}  // namespace millrace
