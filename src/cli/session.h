// A model that is ready to answer: weights, text and engine, and one way to ask.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "runtime/load_model.h"
#include "text/text_model.h"

namespace millrace {

struct Choice {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  FinishReason finish_reason = FinishReason::kAbort;
};

// Times in seconds, from the request.
struct Generation {
  std::vector<Choice> choices;
  int64_t num_prompt_tokens = 0;
  int64_t num_generated = 0;    // over all choices
  double first_token_time = 0;  // of the first choice
  double total_time = 0;
  bool interrupted = false;

  double prefill_rate() const;  // tokens a second
  double decode_rate() const;   // without the first tokens; 0 if there were no others
};

class Session {
 public:
  // Loads weights and tokenizer side by side. `model` is a path or a name.
  static Result<std::unique_ptr<Session>> open(const std::string& model,
                                               const EngineConfig& config);

  // Called with new text; an error ends the answer.
  using OnText = std::function<Result<>(int sample_index, std::string_view text)>;

  // Answers one prompt. Ctrl-C (interrupt.h) ends the answer after the running step.
  Result<Generation> generate(std::vector<int32_t> prompt, const SamplingParams& params,
                              const OnText& on_text);

  // The prompt of a chat, by the model's template.
  Result<std::vector<int32_t>> encode_chat(const nlohmann::ordered_json& messages) const;

  // For commands that keep many requests at work at once.
  Engine& engine() { return *engine_; }
  const TextModel& text() const { return *text_; }
  const LoadedModel& model() const { return model_; }
  // What the model's generation_config.json recommends, else greedy.
  const SamplingParams& default_params() const { return default_params_; }

 private:
  Session() = default;

  LoadedModel model_;
  std::unique_ptr<TextModel> text_;
  std::unique_ptr<Engine> engine_;
  SamplingParams default_params_;
};

}  // namespace millrace
