#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

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

void print_error(const Error& error) {
  // Names from files and arguments may hold line breaks, or what steers a terminal.
  std::string line = error.message;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  log::error("{}", line);
}

}  // namespace millrace
