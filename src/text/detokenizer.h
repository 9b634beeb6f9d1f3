// Token ids one at a time -> text, never showing half a character.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace millrace {

struct DetokenizerOptions {
  bool skip_special_tokens = true;
};

// The deltas of push() joined with that of flush() are the text of all ids. A delta has U+FFFD only
// for bytes that can no longer become a character; the flush has one if the ids end inside a
// character.
class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, DetokenizerOptions options = {});

  // The text that this id completes; often empty.
  std::string push(int32_t id);
  // Ends the text.
  std::string flush();

 private:
  Tokenizer tokenizer_;
  DetokenizerOptions options_;
  Utf8Stream stream_;
};

}  // namespace millrace
