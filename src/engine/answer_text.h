// The text of an answer: detokenizer and stop strings behind the engine's TextSink.
#pragma once

#include <string>
#include <vector>

#include "engine/text_sink.h"
#include "text/tokenizer.h"

namespace millrace {

// Makes the text sinks of a request: whole characters only, without special tokens, ended by the
// first of `stops`, which is not shown.
TextSinkFactory answer_text(const Tokenizer& tokenizer, std::vector<std::string> stops);

}  // namespace millrace
