// The prompts of `millrace eval`: a question with worked examples before it, for a chat or as text
// to continue. The form of GSM8K's is that of the Language Model Evaluation Harness.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/eval_task.h"

namespace millrace {

// Which examples a question gets.
enum class FewshotOrder : uint8_t {
  kRotate,  // the next ones of the file, from its beginning again after its end
  kFirst,   // the first ones of the file, the same for all questions
  kRandom,  // drawn anew for each question
};

// --fewshot-order; the error names the choices.
Result<FewshotOrder> parse_fewshot_order(std::string_view name);

struct FewshotSettings {
  int count = 0;
  FewshotOrder order = FewshotOrder::kRotate;
  uint64_t seed = 0;  // of kRandom
};

// The examples for the question number `index` (from 0) of a file, in the order of the prompt.
// Those whose question is the same text are passed over. Error: too few others.
Result<std::vector<const EvalRow*>> choose_examples(const std::vector<EvalRow>& examples,
                                                    const FewshotSettings& settings, size_t index,
                                                    std::string_view question);

// What the model is given: the content of the user's message if `chat`, else the text to continue.
// The question as it is; for gsm8k with examples, or as text to continue, "Question: Q\nAnswer:"
// after "Question: Q\nAnswer: A\n\n" of each example.
std::string eval_prompt(EvalTask task, bool chat, std::string_view question,
                        const std::vector<const EvalRow*>& examples);

// Texts that end an answer that continues a text (not in a chat, where the model ends its turn).
std::vector<std::string> eval_stops(EvalTask task, bool chat);

}  // namespace millrace
