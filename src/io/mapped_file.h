// A file mapped into memory for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

namespace millrace {

// Owns the mapping; views into it end with it. Movable: moving keeps the addresses.
class MappedFile {
 public:
  // Errors: missing, a directory or other non-file, empty, not readable.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), static_cast<size_t>(size_)};
  }

  // Tells the system that [offset, offset + bytes) has been read for the last time, so that its
  // pages leave this process's resident memory. Reading there again is allowed, and slower. The
  // page that holds the end stays unless the range ends with the file: the neighbour may need it.
  // Thread-safe.
  void release(int64_t offset, int64_t bytes) const;

 private:
  void close();

  std::string path_;
  void* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace millrace
