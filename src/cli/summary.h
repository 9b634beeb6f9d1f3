// What an answer cost, in one line.
#pragma once

#include <string>

#include "cli/session.h"

namespace millrace {

// "prompt 34 tokens, answer 52 tokens (stop), first token after 0.12 s, prefill 283.3 tok/s, decode
// 61.2 tok/s"
std::string summary_of(const Generation& generation);

// Prints it on standard error.
void print_summary(const Generation& generation);

// The generation as JSON: choices (index, text, token_ids, finish_reason, logprobs), usage,
// timings.
nlohmann::ordered_json to_json(const Generation& generation, const std::string& model,
                               const Tokenizer& tokenizer);

}  // namespace millrace
