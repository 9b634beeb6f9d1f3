#include "cli/eval_run.h"

#include <chrono>
#include <map>
#include <utility>

#include "cli/interrupt.h"
#include "engine/answer_text.h"

namespace millrace {

std::expected<std::vector<QueuedPrompt>, PromptError> queue_prompts(
    Engine& engine, const Tokenizer& tokenizer, const SamplingParams& params,
    std::vector<std::vector<int32_t>> prompts) {
  std::vector<QueuedPrompt> queued;
  for (auto& prompt : prompts) {
    const auto num_tokens = static_cast<int64_t>(prompt.size());
    Request request;
    request.prompt_token_ids = std::move(prompt);
    request.params = params;
    request.make_text = answer_text(tokenizer, params.stop);
    auto id = engine.add_request(std::move(request));
    if (!id) return std::unexpected(PromptError{queued.size(), std::move(id).error()});
    queued.push_back({*id, num_tokens});
  }
  return queued;
}

Result<EvalRun> answer_all(Engine& engine, const std::vector<QueuedPrompt>& prompts,
                           const AnswerSink& sink, Progress& progress) {
  EvalRun run;
  std::vector<EvalAnswer> answers(prompts.size());
  std::map<RequestId, size_t> index_of;
  for (size_t i = 0; i < prompts.size(); ++i) {
    answers[i].num_prompt_tokens = prompts[i].num_tokens;
    index_of[prompts[i].id] = i;
  }
  const auto start = std::chrono::steady_clock::now();
  while (engine.has_work()) {
    if (InterruptScope::interrupted() && !run.interrupted) {
      run.interrupted = true;
      for (const QueuedPrompt& prompt : prompts) engine.abort(prompt.id);
    }
    MR_ASSIGN(const StepOutput step, engine.step());
    for (const SequenceOutput& output : step.outputs) {
      const size_t index = index_of.at(output.request_id);
      EvalAnswer& answer = answers[index];
      answer.text += output.text;
      answer.num_tokens += static_cast<int64_t>(output.token_ids.size());
      if (!output.finish_reason) continue;
      answer.finish_reason = *output.finish_reason;
      progress.advance(1);
      if (answer.finish_reason == FinishReason::kAbort) continue;
      MR_TRY(sink(index, answer));
    }
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return run;
}

}  // namespace millrace
