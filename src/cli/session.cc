#include "cli/session.h"

#include <chrono>
#include <future>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/progress.h"
#include "cli/interrupt.h"
#include "engine/answer_text.h"
#include "engine/generation_config.h"
#include "io/model_path.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

EngineOptions engine_options(const LoadedModel& model, const TextModel& text,
                             const EngineConfig& config) {
  EngineOptions options;
  options.num_blocks = model.num_blocks;
  options.block_size = model.block_size;
  options.max_model_len = model.max_model_len;
  options.limits.max_num_batched_tokens = model.max_num_batched_tokens;
  options.limits.max_num_seqs = config.max_num_seqs;
  options.eos_token_ids = text.end_ids();
  options.isa = model.runner->model().execution().isa;
  return options;
}

}  // namespace

double Generation::prefill_rate() const {
  return first_token_time > 0 ? static_cast<double>(num_prompt_tokens) / first_token_time : 0;
}

double Generation::decode_rate() const {
  const auto later = num_generated - static_cast<int64_t>(choices.size());
  const double time = total_time - first_token_time;
  return later > 0 && time > 0 ? static_cast<double>(later) / time : 0;
}

Result<std::unique_ptr<Session>> Session::open(const std::string& model,
                                               const EngineConfig& config) {
  MR_ASSIGN(const std::string path, resolve_model_path(model, model_search_dirs()));
  auto text = std::async(std::launch::async, [&path] { return TextModel::open(path); });
  ProgressBar progress;
  auto session = std::unique_ptr<Session>(new Session);
  auto loaded = load_model(path, config, progress);
  auto opened = text.get();
  if (!loaded) return std::unexpected(std::move(loaded).error());
  if (!opened) return std::unexpected(std::move(opened).error());
  session->model_ = std::move(*loaded);
  session->text_ = std::make_unique<TextModel>(std::move(*opened));
  const int64_t tokens = session->text_->tokenizer().vocabulary_size();
  if (tokens > session->model_.config.vocab_size) {
    log::warning(
        "{}: the tokenizer has {} tokens, the model's embedding {} rows: they may not "
        "belong together, and text with the tokens beyond fails",
        path, tokens, session->model_.config.vocab_size);
  }
  auto defaults = default_sampling_params(session->model_.generation_config);
  if (!defaults) return fail("{}: generation_config.json: {}", path, defaults.error().message);
  session->default_params_ = std::move(*defaults);
  MR_ASSIGN(session->engine_,
            Engine::create(engine_options(session->model_, *session->text_, config),
                           *session->model_.runner));
  return session;
}

Result<std::vector<int32_t>> Session::encode_chat(const nlohmann::ordered_json& messages) const {
  MR_ASSIGN(const ChatTemplate chat, text_->chat_template());
  ChatRequest request;
  request.messages = messages;
  MR_ASSIGN(const ChatRequest adapted, chat.adapt(request));
  return chat.encode(adapted, text_->tokenizer());
}

Result<Generation> Session::generate(std::vector<int32_t> prompt, const SamplingParams& params,
                                     const OnText& on_text) {
  Generation generation;
  generation.num_prompt_tokens = static_cast<int64_t>(prompt.size());
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.params = params;
  request.make_text = answer_text(text_->tokenizer(), params.stop);
  const Clock::time_point start = Clock::now();
  MR_ASSIGN(const RequestId id, engine_->add_request(std::move(request)));
  generation.choices.resize(static_cast<size_t>(params.n));

  std::optional<Error> error;
  while (engine_->has_work()) {
    if (InterruptScope::interrupted() && !generation.interrupted) {
      generation.interrupted = true;
      engine_->abort(id);
    }
    auto step = engine_->step();
    if (!step) {
      error = step.error();
      engine_->abort(id);
      continue;
    }
    for (SequenceOutput& output : step->outputs) {
      Choice& choice = generation.choices[static_cast<size_t>(output.sample_index)];
      if (generation.num_generated == 0) generation.first_token_time = seconds_since(start);
      generation.num_generated += static_cast<int64_t>(output.token_ids.size());
      choice.token_ids.insert(choice.token_ids.end(), output.token_ids.begin(),
                              output.token_ids.end());
      for (TokenLogprobs& each : output.logprobs) choice.logprobs.push_back(std::move(each));
      choice.text += output.text;
      if (output.finish_reason) choice.finish_reason = *output.finish_reason;
      if (error || output.text.empty()) continue;
      if (const Result<> written = on_text(output.sample_index, output.text); !written) {
        error = written.error();
        engine_->abort(id);
      }
    }
  }
  if (error) return std::unexpected(std::move(*error));
  generation.total_time = seconds_since(start);
  return generation;
}

}  // namespace millrace
