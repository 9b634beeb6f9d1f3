#include "base/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace millrace {

Result<Buffer> Buffer::allocate(size_t size) {
  Buffer buffer;
  if (size == 0) return buffer;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail("the system gave no memory for {:.1f} MB: {}", static_cast<double>(size) / 1e6,
                std::strerror(errno));
  }
  // Streaming a weight matrix touches every page; with 4 KiB pages the TLB misses cost bandwidth.
  constexpr size_t kHugePage = size_t{2} << 20;
  if (size >= kHugePage) madvise(memory, size, MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = size;
  return buffer;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace millrace
