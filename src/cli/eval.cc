#include "cli/eval.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "cli/engine_flags.h"
#include "cli/eval_prompt.h"
#include "cli/eval_report.h"
#include "cli/eval_run.h"
#include "cli/eval_task.h"
#include "cli/interrupt.h"
#include "cli/model_context.h"
#include "cli/output.h"
#include "cli/sampling_flags.h"
#include "cli/session.h"
#include "io/model_path.h"

namespace millrace {
namespace {

constexpr int64_t kMaxFewshot = 1000;

struct EvalFlags {
  std::string model;
  std::string file;
  std::string task;
  int64_t num_fewshot = 0;
  std::string fewshot_file;
  std::string fewshot_order = "rotate";
  uint64_t fewshot_seed = 1234;  // the harness's
  std::optional<int64_t> limit;
  bool no_chat_template = false;
  bool json = false;
  std::string output;
  SamplingFlags sampling;
  EngineFlags engine;
};

// A question with everything that belongs to it.
struct Question {
  EvalRow row;
  std::string prompt;
};

// The questions of a run, and how they are asked.
struct EvalPlan {
  EvalTask task = EvalTask::kNeedle;
  std::vector<Question> questions;
  SamplingParams params;  // but for the model's vocabulary checked
};

// How answers are sampled: the likeliest token, whatever the model recommends for chats, so that
// the same model gives the same accuracy each time; the flags change that.
Result<SamplingParams> sampling_of(const EvalFlags& flags, EvalTask task) {
  SamplingParams greedy;
  greedy.temperature = 0;
  MR_ASSIGN(SamplingParams params, flags.sampling.apply_to(greedy));
  if (!params.max_tokens) params.max_tokens = task == EvalTask::kNeedle ? 32 : 256;
  for (std::string& stop : eval_stops(task, !flags.no_chat_template)) {
    params.stop.push_back(std::move(stop));
  }
  MR_TRY(validate(params, std::nullopt));
  return params;
}

Result<> check(const EvalFlags& flags) {
  if (flags.limit && *flags.limit < 1) {
    return fail("--limit {}: expected at least 1 question", *flags.limit);
  }
  if (flags.num_fewshot < 0 || flags.num_fewshot > kMaxFewshot) {
    return fail("--num-fewshot {}: expected 0 to {}", flags.num_fewshot, kMaxFewshot);
  }
  if (flags.num_fewshot > 0 && flags.fewshot_file.empty()) {
    return fail("--num-fewshot {} needs --fewshot-file, which has the examples", flags.num_fewshot);
  }
  if (flags.num_fewshot == 0 && !flags.fewshot_file.empty()) {
    return fail("--fewshot-file {} needs --num-fewshot, the number of examples for a question",
                flags.fewshot_file);
  }
  return {};
}

// Everything that can be told before the model is loaded.
Result<EvalPlan> plan_of(const EvalFlags& flags) {
  MR_TRY(check(flags));
  MR_ASSIGN(const FewshotOrder order, parse_fewshot_order(flags.fewshot_order));
  std::optional<EvalTask> task;
  if (!flags.task.empty()) {
    MR_ASSIGN(task, parse_eval_task(flags.task));
  }
  MR_ASSIGN(EvalSet set, read_eval_set(flags.file, task, flags.limit));
  EvalPlan plan;
  plan.task = set.task;
  MR_ASSIGN(plan.params, sampling_of(flags, plan.task));
  std::vector<EvalRow> examples;
  if (flags.num_fewshot > 0) {
    if (plan.task == EvalTask::kNeedle) {
      return fail("--num-fewshot {}: questions of needle take no examples", flags.num_fewshot);
    }
    MR_ASSIGN(EvalSet shots, read_eval_set(flags.fewshot_file, plan.task, std::nullopt));
    examples = std::move(shots.rows);
  }
  const FewshotSettings settings = {static_cast<int>(flags.num_fewshot), order, flags.fewshot_seed};
  for (EvalRow& row : set.rows) {
    const auto shots = choose_examples(examples, settings, plan.questions.size(), row.question);
    if (!shots) return fail("{}: {}", flags.fewshot_file, shots.error().message);
    std::string prompt = eval_prompt(plan.task, !flags.no_chat_template, row.question, *shots);
    plan.questions.push_back({std::move(row), std::move(prompt)});
  }
  return plan;
}

// Opens --output. Error: it cannot be written, or is a file that this run reads.
Result<std::ofstream> open_output(const EvalFlags& flags) {
  std::ofstream out;
  if (flags.output.empty()) return out;
  std::error_code ignored;
  for (const std::string& input : {flags.file, flags.fewshot_file}) {
    if (std::filesystem::equivalent(flags.output, input, ignored)) {
      return fail("--output {}: is a file that this run reads; choose another name", flags.output);
    }
  }
  out.open(flags.output, std::ios::binary | std::ios::trunc);
  if (!out) return fail("--output {}: cannot be written: {}", flags.output, std::strerror(errno));
  return out;
}

Result<std::vector<int32_t>> encode(const Session& session, bool chat, const std::string& prompt) {
  if (!chat) return session.text().encode_prompt(prompt);
  auto ids =
      session.encode_chat(nlohmann::ordered_json::array({{{"role", "user"}, {"content", prompt}}}));
  if (!ids) return fail("{}; --no-chat-template continues plain text", ids.error().message);
  return ids;
}

// Encodes and queues all questions. Errors name the line.
Result<std::vector<QueuedPrompt>> queue(Session& session, const EvalFlags& flags,
                                        const EvalPlan& plan) {
  std::vector<std::vector<int32_t>> prompts;
  const auto at_line = [&](size_t index, const Error& error) {
    return fail("{}, line {}: {}", flags.file, plan.questions[index].row.line, error.message);
  };
  for (const Question& question : plan.questions) {
    auto ids = encode(session, !flags.no_chat_template, question.prompt);
    if (!ids) return at_line(prompts.size(), ids.error());
    prompts.push_back(std::move(*ids));
  }
  auto queued =
      queue_prompts(session.engine(), session.text().tokenizer(), plan.params, std::move(prompts));
  if (!queued) return at_line(queued.error().index, queued.error().error);
  return std::move(*queued);
}

// Writes a row of --output and hands it to the system, so that it stays if the run is killed.
Result<> write_row(const std::string& path, const nlohmann::ordered_json& row, std::ofstream& out) {
  if (!out.is_open()) return {};
  out << row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (out.flush()) return {};
  return fail("--output {}: writing failed: {}", path, std::strerror(errno));
}

// Answers all questions; counts each answer and writes its row as soon as it has ended.
Result<EvalRun> answer(Session& session, const EvalFlags& flags, const EvalPlan& plan,
                       std::ofstream& out, EvalReport& report) {
  MR_ASSIGN(const std::vector<QueuedPrompt> prompts, queue(session, flags, plan));
  const auto take = [&](size_t index, const EvalAnswer& answer) -> Result<> {
    const Question& question = plan.questions[index];
    const EvalVerdict verdict = judge(plan.task, question.row, answer.text);
    count(report, answer, verdict);
    return write_row(flags.output, answer_row(question.row, question.prompt, answer, verdict), out);
  };
  ProgressBar progress;
  progress.begin(std::string(name_of(plan.task)), static_cast<int64_t>(prompts.size()), false);
  InterruptScope interrupts;
  auto run = answer_all(session.engine(), prompts, take, progress);
  progress.end();
  return run;
}

Result<int> evaluate(const EvalFlags& flags) {
  MR_ASSIGN(EngineConfig config, flags.engine.parse(Purpose::kGenerate));
  MR_ASSIGN(const EvalPlan plan, plan_of(flags));
  // The cache need not hold more sequences than there are questions.
  const auto questions = static_cast<int64_t>(plan.questions.size());
  config.max_num_seqs =
      flags.engine.num_seqs_for(std::min<int64_t>(config.max_num_seqs, questions));
  // What cannot work is told before an older output is lost and the weights are packed.
  MR_ASSIGN(const std::string path, resolve_model_path(flags.model, model_search_dirs()));
  MR_ASSIGN(const ModelLimits limits, limits_of(path, config));
  MR_TRY(validate(plan.params, limits.vocab_size));
  MR_ASSIGN(std::ofstream out, open_output(flags));
  MR_ASSIGN(const auto session, Session::open(flags.model, config));
  EvalReport report;
  report.model = session->model().path;
  report.file = flags.file;
  report.task = plan.task;
  report.num_fewshot = static_cast<int>(flags.num_fewshot);
  report.chat = !flags.no_chat_template;
  MR_ASSIGN(const EvalRun run, answer(*session, flags, plan, out, report));
  report.seconds = run.seconds;
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  MR_TRY(write_stdout(flags.json ? to_json(report).dump(2, ' ', false, replace) + "\n"
                                 : report_table(report)));
  if (!run.interrupted) return 0;
  print_error({fmt::format("stopped after {} of {} questions", report.total, questions)});
  return kInterruptedExitCode;
}

}  // namespace

void add_eval_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("eval", "Measure how many questions of a file a model answers rightly");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("MODEL", flags->model, "Path or name of a model")->required();
  command->add_option("FILE", flags->file, "Questions, one JSON object a line; -: standard input")
      ->required();
  command->add_option("--task", flags->task,
                      "needle (prompt, answer: exact match) or gsm8k (question, answer with #### "
                      "NUMBER: the number counts); default: by the fields");
  command->add_option("--num-fewshot", flags->num_fewshot,
                      "Worked examples before each question (gsm8k)");
  command->add_option("--fewshot-file", flags->fewshot_file, "Where they come from, as FILE");
  command
      ->add_option("--fewshot-order", flags->fewshot_order,
                   "rotate: each question gets the next ones of the file; first: all get the first "
                   "ones; random: drawn for each question. Never the question itself")
      ->capture_default_str();
  command->add_option("--fewshot-seed", flags->fewshot_seed, "Of --fewshot-order random")
      ->capture_default_str();
  command->add_option("--limit", flags->limit, "Only the first N questions");
  command->add_flag("--no-chat-template", flags->no_chat_template,
                    "Let the model continue text: \"Question: ...\\nAnswer:\" to the next "
                    "\"Question\" (gsm8k), the prompt as it is (needle)");
  command->add_flag("--json", flags->json, "Print the result as JSON");
  command->add_option(
      "--output", flags->output,
      "JSONL file to write: prompt, answer and verdict of each question, as soon as "
      "it is answered; \"line\" is where it stands in FILE");
  add_sampling_flags(*command, flags->sampling);
  // Each question has one answer, and only that is judged.
  for (const char* name : {"--n", "--logprobs"}) {
    command->remove_option(command->get_option(name));
  }
  command->get_option("--temperature")
      ->description("0, the default: always the likeliest token, whatever the model recommends");
  command->get_option("--max-tokens")
      ->description("Longest answer; default: 32 (needle), 256 (gsm8k)");
  add_engine_flags(*command, flags->engine);
  command->footer(
      "The interval is where the accuracy is with 95% confidence, given so many questions.\n"
      "Examples:\n"
      "  millrace eval tiny-dsa models/tiny-dsa/eval/needle.jsonl\n"
      "  millrace eval tiny-dsa models/tiny-dsa/eval/wordproblems.jsonl --num-fewshot 4 \\\n"
      "      --fewshot-file models/tiny-dsa/eval/wordproblems_train.jsonl\n"
      "  millrace eval smollm2 gsm8k_test.jsonl --limit 100 --json");
  command->callback([flags, &exit_code] {
    const Result<int> done = evaluate(*flags);
    if (!done) print_error(done.error());
    exit_code = done.value_or(1);
  });
}

}  // namespace millrace
