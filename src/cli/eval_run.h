// Answers many prompts with one engine: all are queued at once, and each step takes as many as its
// limits allow.
#pragma once

#include <cstdint>
#include <functional>
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
  FinishReason finish_reason = FinishReason::kAbort;  // kAbort: not yet ended
};

// How a run went.
struct EvalRun {
  double seconds = 0;
  bool interrupted = false;
};

// A prompt that the engine has taken.
struct QueuedPrompt {
  RequestId id;
  int64_t num_tokens = 0;
};

// The number of the prompt that is at fault, and what is wrong with it.
struct PromptError {
  size_t index = 0;
  Error error;
};

// Queues a request for each prompt, in this order. `params.n` is 1. Error: a prompt that the engine
// does not take; the others stay queued, so the engine is of no use then.
std::expected<std::vector<QueuedPrompt>, PromptError> queue_prompts(
    Engine& engine, const Tokenizer& tokenizer, const SamplingParams& params,
    std::vector<std::vector<int32_t>> prompts);

// Takes the answer to prompt `index` as soon as it has ended. An error ends the run.
using AnswerSink = std::function<Result<>(size_t index, const EvalAnswer& answer)>;

// Runs the engine until all prompts are answered, or Ctrl-C (interrupt.h) ends those that are not;
// the sink does not get these. Progress counts answers. Error: a step's or the sink's.
Result<EvalRun> answer_all(Engine& engine, const std::vector<QueuedPrompt>& prompts,
                           const AnswerSink& sink, Progress& progress);

}  // namespace millrace
