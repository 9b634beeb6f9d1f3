#include "text/detokenizer.h"

#include <utility>

namespace millrace {

Detokenizer::Detokenizer(Tokenizer tokenizer, DetokenizerOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      strip_next_space_(options.at_text_start && tokenizer_.strips_leading_space()) {}

std::string Detokenizer::push(int32_t id) {
  if (options_.skip_special_tokens && tokenizer_.is_special(id)) return {};
  std::string bytes = tokenizer_.token_bytes(id);
  if (strip_next_space_ && !bytes.empty()) {
    if (bytes.front() == ' ') bytes.erase(0, 1);
    strip_next_space_ = false;
  }
  return stream_.push(bytes);
}

std::string Detokenizer::flush() { return stream_.flush(); }

}  // namespace millrace
