#include "cli/run.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "cli/chat.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/sampling_flags.h"
#include "cli/session.h"
#include "cli/summary.h"
#include "io/model_path.h"

namespace millrace {
namespace {

constexpr size_t kMaxPromptBytes = size_t{64} << 20;

struct RunFlags {
  std::string model = "smollm2";
  std::string prompt;
  bool has_prompt = false;
  std::string system;
  bool no_chat_template = false;
  bool json = false;
  SamplingFlags sampling;
  EngineFlags engine;
};

Result<std::string> read_stdin() {
  std::string text;
  char chunk[1 << 16];
  while (true) {
    const ssize_t count = ::read(STDIN_FILENO, chunk, sizeof chunk);
    if (count == 0) break;
    if (count < 0) {
      if (errno == EINTR) continue;
      return fail("cannot read the standard input: {}", std::strerror(errno));
    }
    text.append(chunk, static_cast<size_t>(count));
    if (text.size() > kMaxPromptBytes) {
      return fail("the standard input has more than {} bytes; a prompt is at most that long",
                  kMaxPromptBytes);
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::vector<int32_t>> encode(const Session& session, const RunFlags& flags,
                                    const std::string& prompt) {
  if (flags.no_chat_template) {
    return session.text().encode_prompt(plain_prompt(flags.system, prompt));
  }
  auto messages = nlohmann::ordered_json::array();
  if (!flags.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", flags.system}});
  }
  messages.push_back({{"role", "user"}, {"content", prompt}});
  auto ids = session.encode_chat(messages);
  if (!ids) {
    return fail("{}; --no-chat-template continues plain text", ids.error().message);
  }
  return ids;
}

// Answers of one prompt on standard output: the first streams, the others follow, each after an
// empty line.
Result<int> answer_once(Session& session, const RunFlags& flags, const SamplingParams& params,
                        const std::string& prompt) {
  MR_ASSIGN(std::vector<int32_t> ids, encode(session, flags, prompt));
  const auto show = [&](int sample_index, std::string_view text) -> Result<> {
    if (flags.json || sample_index != 0) return {};
    return write_stdout(text);
  };
  InterruptScope interrupts;
  MR_ASSIGN(const Generation generation, session.generate(std::move(ids), params, show));
  if (flags.json) {
    const auto json = to_json(generation, session.model().path, session.text().tokenizer());
    const auto replace = nlohmann::ordered_json::error_handler_t::replace;
    MR_TRY(write_stdout(json.dump(2, ' ', false, replace) + "\n"));
  } else {
    MR_TRY(write_stdout("\n"));
    for (size_t i = 1; i < generation.choices.size(); ++i) {
      MR_TRY(write_stdout("\n" + generation.choices[i].text + "\n"));
    }
  }
  print_summary(generation);
  return generation.interrupted ? kInterruptedExitCode : 0;
}

Result<int> run(const RunFlags& flags) {
  MR_ASSIGN(EngineConfig config, flags.engine.parse(Purpose::kGenerate));
  // Wrong values are told before the model is loaded; the vocabulary is not known yet.
  MR_ASSIGN(const SamplingParams typed, flags.sampling.apply_to({}));
  MR_TRY(validate(typed, std::nullopt));
  if (!flags.system.empty() && flags.no_chat_template) {
    return fail("--system needs the chat template, which --no-chat-template leaves out");
  }
  if (flags.sampling.logprobs && !flags.json) {
    return fail("--logprobs needs --json: a streamed answer has no place for them");
  }
  // A run has one request: the cache need not hold more.
  config.max_num_seqs = flags.engine.num_seqs_for(typed.n);

  const bool interactive = !flags.has_prompt && isatty(STDIN_FILENO);
  if (interactive && flags.json) return fail("--json needs a prompt: -p, or standard input");
  if (interactive && typed.n != 1)
    return fail("--n {} needs a prompt: a chat has one answer", typed.n);
  std::string prompt = flags.prompt;
  if (!interactive && !flags.has_prompt) {
    MR_ASSIGN(prompt, read_stdin());
  }
  auto opened = Session::open(flags.model, config);
  if (!opened) {
    const bool maybe_prompt = flags.model.find(' ') != std::string::npos &&
                              !resolve_model_path(flags.model, model_search_dirs());
    return fail("{}{}", opened.error().message,
                maybe_prompt ? "; if this is a prompt, give it with -p" : "");
  }
  const auto session = std::move(*opened);
  MR_ASSIGN(const SamplingParams params, flags.sampling.apply_to(session->default_params()));
  if (!interactive) return answer_once(*session, flags, params, prompt);
  MR_TRY(run_chat(*session, {flags.system, !flags.no_chat_template, params}));
  return 0;
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("run", "Answer a prompt, or chat");
  auto flags = std::make_shared<RunFlags>();
  command->add_option("MODEL", flags->model, "Path or name of a model")->capture_default_str();
  CLI::Option* prompt =
      command->add_option("-p,--prompt", flags->prompt,
                          "Prompt; default: standard input, or a chat if that is a terminal");
  command->add_option("--system", flags->system, "System message");
  command->add_flag("--no-chat-template", flags->no_chat_template,
                    "Continue the prompt as plain text");
  command->add_flag("--json", flags->json,
                    "Print the answers, token counts and times as JSON at the end");
  add_sampling_flags(*command, flags->sampling);
  add_engine_flags(*command, flags->engine);
  command->footer(
      "The answer goes to standard output, everything else to standard error.\n"
      "Examples:\n"
      "  millrace run smollm2 -p \"What is a millrace?\"\n"
      "  millrace run ./Qwen3-0.6B --temperature 0.7 --top-p 0.9 --seed 1\n"
      "  cat letter.txt | millrace run smollm2 --system \"Summarise in one sentence.\"");
  command->callback([flags, prompt, &exit_code] {
    flags->has_prompt = prompt->count() > 0;
    const Result<int> done = run(*flags);
    if (!done) print_error(done.error());
    exit_code = done.value_or(1);
  });
}

}  // namespace millrace
