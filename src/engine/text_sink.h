// What the engine core knows of text: tokens go in, text comes out, and it may end the answer.
//
// The core itself works on token ids; answer_text.h implements this with a tokenizer, tests with
// anything.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace millrace {

class TextSink {
 public:
  virtual ~TextSink() = default;

  // Takes the next token of the answer and appends the text that is now certain to `text`. True if
  // the answer ends here (a stop string was found); the text then ends before it. Stop strings are
  // not looked for while `may_stop` is false.
  virtual bool accept(int32_t token, bool may_stop, std::string& text) = 0;

  // The answer has ended for another reason: appends the text that was held back.
  virtual void finish(std::string& text) = 0;
};

// Makes the sink of one sample.
using TextSinkFactory = std::function<std::unique_ptr<TextSink>()>;

}  // namespace millrace
