// Large zeroed memory: page-aligned, huge pages where the kernel gives them, freed by RAII.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/error.h"

namespace millrace {

// Owns `size` bytes of anonymous memory. Pages are zero and are not resident until written.
class Buffer {
 public:
  Buffer() = default;
  // Error if the system does not give the memory. size 0 gives an empty buffer.
  static Result<Buffer> allocate(size_t size);

  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  template <typename T>
  T* as(size_t byte_offset = 0) {
    return reinterpret_cast<T*>(data_ + byte_offset);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace
