#include "text/detokenizer.h"

#include <utility>

namespace millrace {

Detokenizer::Detokenizer(Tokenizer tokenizer, DetokenizerOptions options)
    : tokenizer_(std::move(tokenizer)), options_(options) {}

std::string Detokenizer::push(int32_t id) {
  if (options_.skip_special_tokens && tokenizer_.is_special(id)) return {};
  return stream_.push(tokenizer_.token_bytes(id));
}

std::string Detokenizer::flush() { return stream_.flush(); }

}  // namespace millrace
