#include "cli/eval_task.h"

#include <utility>

#include "cli/eval_score.h"
#include "cli/jsonl.h"

namespace millrace {
namespace {

using nlohmann::ordered_json;

const char* question_field(EvalTask task) {
  return task == EvalTask::kNeedle ? "prompt" : "question";
}

Result<EvalTask> task_of(const ordered_json& row) {
  const bool needle = row.contains(question_field(EvalTask::kNeedle));
  const bool gsm8k = row.contains(question_field(EvalTask::kGsm8k));
  if (needle && gsm8k) {
    return fail("the row has \"prompt\" and \"question\"; --task needle or --task gsm8k chooses");
  }
  if (needle) return EvalTask::kNeedle;
  if (gsm8k) return EvalTask::kGsm8k;
  return fail(
      "the row has neither \"prompt\" nor \"question\"; expected \"prompt\" and \"answer\" "
      "(needle), or \"question\" and \"answer\" (gsm8k)");
}

Result<EvalRow> parse_row(EvalTask task, int64_t line, const ordered_json& row) {
  EvalRow parsed;
  parsed.line = line;
  const auto text = [&](const char* field) -> Result<std::string> {
    auto value = text_field(row, field);
    if (!value) {
      return fail("{}; a row of {} has the texts \"{}\" and \"answer\"", value.error().message,
                  name_of(task), question_field(task));
    }
    if (trim(*value).empty()) return fail("\"{}\" is empty; expected a text", field);
    return value;
  };
  MR_ASSIGN(parsed.question, text(question_field(task)));
  MR_ASSIGN(parsed.answer, text("answer"));
  if (!extract_answer(task, parsed.answer)) {
    return fail("\"answer\" has no number; expected one at its end, after \"####\"");
  }
  return parsed;
}

}  // namespace

std::string_view name_of(EvalTask task) { return task == EvalTask::kNeedle ? "needle" : "gsm8k"; }

Result<EvalTask> parse_eval_task(std::string_view name) {
  for (const EvalTask task : {EvalTask::kNeedle, EvalTask::kGsm8k}) {
    if (name == name_of(task)) return task;
  }
  return fail("--task {}: unknown; choose from needle, gsm8k", name);
}

Result<EvalSet> read_eval_set(const std::string& path, std::optional<EvalTask> task,
                              std::optional<int64_t> limit) {
  EvalSet set;
  const auto take = [&](int64_t line, const ordered_json& row) -> Result<> {
    if (limit && static_cast<int64_t>(set.rows.size()) >= *limit) return {};
    if (!task) {
      MR_ASSIGN(task, task_of(row));
    }
    MR_ASSIGN(EvalRow parsed, parse_row(*task, line, row));
    set.rows.push_back(std::move(parsed));
    return {};
  };
  MR_TRY(for_each_numbered_row(path, take));
  if (set.rows.empty()) return fail("{}: no rows; expected one JSON object a line", path);
  set.task = *task;
  return set;
}

std::optional<std::string> extract_answer(EvalTask task, std::string_view text) {
  if (task == EvalTask::kGsm8k) return final_number(text);
  return std::string(trim(text));
}

}  // namespace millrace
