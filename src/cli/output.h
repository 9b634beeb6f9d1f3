// Standard output, where answers go: unbuffered, and its end is an ordinary event.
#pragma once

#include <string_view>

#include "base/error.h"

namespace millrace {

// Writes all of `text`. Error: the reader is gone, or the disk is full. (SIGPIPE is ignored.)
Result<> write_stdout(std::string_view text);

// Prints "millrace: error: MESSAGE" on stderr.
void print_error(const Error& error);

}  // namespace millrace
