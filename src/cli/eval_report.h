// What `millrace eval` found: a table, JSON, and a row for each question.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/eval_run.h"
#include "cli/eval_task.h"

namespace millrace {

// Counts of one evaluation. Questions that Ctrl-C left open are not in them.
struct EvalReport {
  std::string model;
  std::string file;
  EvalTask task = EvalTask::kNeedle;
  int num_fewshot = 0;
  bool chat = true;
  int64_t total = 0;
  int64_t correct = 0;
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
  int64_t cut_off = 0;  // answers that --max-tokens or the context ended
  double seconds = 0;   // of the answers, without loading

  double accuracy() const;           // 0 of none
  double tokens_per_second() const;  // prompts and answers
};

// The verdict on one answer.
struct EvalVerdict {
  std::optional<std::string> extracted;
  std::string expected;
  bool correct = false;
};

EvalVerdict judge(EvalTask task, const EvalRow& row, const std::string& answer);

// Counts an answer that has ended.
void count(EvalReport& report, const EvalAnswer& answer, const EvalVerdict& verdict);

std::string report_table(const EvalReport& report);
nlohmann::ordered_json to_json(const EvalReport& report);

// A row of --output. `prompt` is what the model was given, before the chat template.
nlohmann::ordered_json answer_row(const EvalRow& row, const std::string& prompt,
                                  const EvalAnswer& answer, const EvalVerdict& verdict);

}  // namespace millrace
