#include "cli/eval_run.h"

#include <chrono>
#include <map>
#include <utility>

#include "cli/interrupt.h"
#include "engine/answer_text.h"

namespace millrace {

std::expected<std::vector<RequestId>, PromptError> queue_prompts(
    Engine& engine, const Tokenizer& tokenizer, const SamplingParams& params,
    std::vector<std::vector<int32_t>> prompts) {
  std::vector<RequestId> ids;
  for (auto& prompt : prompts) {
    Request request;
    request.prompt_token_ids = std::move(prompt);
    request.params = params;
    request.make_text = answer_text(tokenizer, params.stop);
    auto id = engine.add_request(std::move(request));
    if (!id) return std::unexpected(PromptError{ids.size(), std::move(id).error()});
    ids.push_back(*id);
  }
  return ids;
}

Result<EvalAnswers> answer_all(Engine& engine, const std::vector<RequestId>& requests,
                               Progress& progress) {
  EvalAnswers run;
  run.answers.resize(requests.size());
  std::map<RequestId, EvalAnswer*> by_id;
  for (size_t i = 0; i < requests.size(); ++i) by_id[requests[i]] = &run.answers[i];

  const auto start = std::chrono::steady_clock::now();
  while (engine.has_work()) {
    if (InterruptScope::interrupted() && !run.interrupted) {
      run.interrupted = true;
      for (const RequestId id : requests) engine.abort(id);
    }
    MR_ASSIGN(const StepOutput step, engine.step());
    for (const SequenceOutput& output : step.outputs) {
      EvalAnswer& answer = *by_id.at(output.request_id);
      answer.text += output.text;
      answer.num_tokens += static_cast<int64_t>(output.token_ids.size());
      if (!output.finish_reason) continue;
      answer.finish_reason = *output.finish_reason;
      progress.advance(1);
    }
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return run;
}

}  // namespace millrace
