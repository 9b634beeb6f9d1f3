// The tasks of `millrace eval`: the rows of their files, and how an answer is judged.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace millrace {

enum class EvalTask : uint8_t {
  kNeedle,  // rows of `prompt` and `answer`: the answer is that text and nothing else
  kGsm8k,   // rows of `question` and `answer`, which ends "#### NUMBER": the number counts
};

std::string_view name_of(EvalTask task);  // "needle", "gsm8k"
// --task; the error names the choices.
Result<EvalTask> parse_eval_task(std::string_view name);

struct EvalRow {
  int64_t line = 0;      // in its file, from 1
  std::string question;  // the field `prompt` or `question`
  std::string answer;    // as the file has it
};

struct EvalSet {
  EvalTask task = EvalTask::kNeedle;
  std::vector<EvalRow> rows;  // at least one
};

// Reads a file of rows ("-": standard input). Without `task` the fields of the first row tell it.
// At most `limit` rows are taken, from the beginning; those after them are not looked at beyond
// being JSON. Errors name the file, the line, and what was expected there.
Result<EvalSet> read_eval_set(const std::string& path, std::optional<EvalTask> task,
                              std::optional<int64_t> limit);

// What counts of an answer, by the task: the trimmed text, or the last number (nothing without
// one). Two answers are the same if this is.
std::optional<std::string> extract_answer(EvalTask task, std::string_view text);

}  // namespace millrace
