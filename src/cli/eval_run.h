// Answers many prompts with one engine: all are queued at once, and each step takes as many as its
// limits allow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace millrace {

struct EvalAnswer {
  std::string text;
  int64_t num_prompt_tokens = 0;
  int64_t num_tokens = 0;                             // generated, an end token included
  FinishReason finish_reason = FinishReason::kAbort;  // kAbort: Ctrl-C came before its end
};

struct EvalAnswers {
  std::vector<EvalAnswer> answers;  // in the order of the prompts
  double seconds = 0;
  bool interrupted = false;
};

// The number of the prompt that is at fault, and what is wrong with it.
struct PromptError {
  size_t index = 0;
  Error error;
};

// Queues a request for each prompt. `params.n` is 1. The ids are those of the requests. Error: a
// prompt that the engine does not take; the others stay queued, so the engine is of no use then.
std::expected<std::vector<RequestId>, PromptError> queue_prompts(
    Engine& engine, const Tokenizer& tokenizer, const SamplingParams& params,
    std::vector<std::vector<int32_t>> prompts);

// Runs the engine until all of `requests` have ended, or Ctrl-C (interrupt.h) ends those that have
// not. Progress counts answers. Error: a step's.
Result<EvalAnswers> answer_all(Engine& engine, const std::vector<RequestId>& requests,
                               Progress& progress);

}  // namespace millrace
