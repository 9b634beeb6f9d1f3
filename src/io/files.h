// Questions about files.
#pragma once

#include <filesystem>

namespace millrace {

// True if there is a file or folder at `path`; false if not, or if it cannot be told.
inline bool path_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace millrace
