// Ownership for results of the Rust text library (text-rs/include/millrace_text.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "millrace_text.h"

namespace millrace {

inline mrt_view view_of(std::string_view text) { return {text.data(), text.size()}; }

// Text that the library allocated; freed with it.
class RustText {
 public:
  RustText() = default;
  ~RustText() { mrt_text_free(text_); }
  RustText(const RustText&) = delete;
  RustText& operator=(const RustText&) = delete;

  mrt_text* out() { return &text_; }
  std::string str() const {
    return text_.size == 0 ? std::string() : std::string(text_.data, text_.size);
  }

 private:
  mrt_text text_ = {};
};

// Ids that the library allocated; freed with it.
class RustIds {
 public:
  RustIds() = default;
  ~RustIds() { mrt_ids_free(ids_); }
  RustIds(const RustIds&) = delete;
  RustIds& operator=(const RustIds&) = delete;

  mrt_ids* out() { return &ids_; }
  std::vector<int32_t> vec() const {
    return ids_.size == 0 ? std::vector<int32_t>()
                          : std::vector<int32_t>(ids_.data, ids_.data + ids_.size);
  }

 private:
  mrt_ids ids_ = {};
};

}  // namespace millrace
