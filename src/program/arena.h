// Bump allocation of activations: offsets into one buffer, or, without a buffer, just the count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace millrace {

// Hands out 64-byte aligned pieces of a buffer that it does not own. Without a buffer, or past its
// end, it hands out null and only adds up: that is how workspace is sized and programs are priced.
class Arena {
 public:
  Arena() = default;
  Arena(std::byte* base, int64_t capacity) : base_(base), capacity_(capacity) {}

  // `count` elements of T, uninitialised.
  template <typename T>
  T* allocate(int64_t count) {
    return reinterpret_cast<T*>(allocate_bytes(count * static_cast<int64_t>(sizeof(T))));
  }

  std::byte* allocate_bytes(int64_t bytes) {
    const int64_t begin = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    peak_ = std::max(peak_, used_);
    if (base_ == nullptr || used_ > capacity_) return nullptr;
    return base_ + begin;
  }

  // False if more was asked for than there is: some pieces are null, and what was recorded on them
  // must not be run. peak() says how much is needed.
  bool fits() const { return peak_ <= capacity_; }
  // Position to return to with release(): what was allocated after it is free again.
  int64_t mark() const { return used_; }
  void release(int64_t mark) { used_ = mark; }
  // Most bytes that were ever in use.
  int64_t peak() const { return peak_; }
  void reset() { used_ = 0; }

 private:
  static constexpr int64_t kAlignment = 64;

  std::byte* base_ = nullptr;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

}  // namespace millrace
