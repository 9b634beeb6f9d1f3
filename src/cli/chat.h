// The interactive chat of `millrace run`.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/session.h"

namespace millrace {

struct ChatOptions {
  std::string system;        // system message; empty: none (the template may have its own)
  bool use_template = true;  // false: each message continues the text so far, as it is
  SamplingParams params;
};

// The text that is continued where no chat template is used: the system message, if there is one,
// in lines of its own, and then what was said.
std::string plain_prompt(const std::string& system, const std::string& said);

// Talks until the person leaves (Ctrl-D, /exit). Answers go to standard output; prompts, messages
// and summaries to standard error. Error: the model cannot chat, or standard output is gone.
Result<> run_chat(Session& session, const ChatOptions& options);

}  // namespace millrace
