#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

// Closes the descriptor at the end of the scope; the mapping outlives it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int64_t page_size() {
  static const int64_t size = sysconf(_SC_PAGESIZE);
  return size;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: a named pipe is refused below instead of waited for.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return fail("{}: no such file", path);
    return fail("{}: cannot be opened: {}", path, std::strerror(error));
  }
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return fail("{}: {}", path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) return fail("{}: is a folder, expected a file", path);
  if (!S_ISREG(status.st_mode)) return fail("{}: is not a regular file", path);
  if (status.st_size == 0) return fail("{}: the file is empty", path);
  void* data =
      mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return fail("{}: cannot be mapped: {}", path, std::strerror(errno));
  MappedFile file;
  file.path_ = path;
  file.data_ = data;
  file.size_ = status.st_size;
  return file;
}

MappedFile::~MappedFile() { close(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    close();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void MappedFile::close() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
  data_ = nullptr;
}

void MappedFile::release(int64_t offset, int64_t bytes) const {
  const int64_t page = page_size();
  const int64_t begin = offset / page * page;
  const int64_t end = offset + bytes >= size_ ? size_ : (offset + bytes) / page * page;
  if (offset < 0 || bytes <= 0 || begin >= end) return;
  // Best effort: on failure the pages merely stay resident.
  madvise(static_cast<std::byte*>(data_) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace millrace
