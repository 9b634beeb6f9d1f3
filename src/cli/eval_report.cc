#include "cli/eval_report.h"

#include <fmt/format.h>

#include "cli/eval_score.h"

namespace millrace {

double EvalReport::accuracy() const {
  return total > 0 ? static_cast<double>(correct) / static_cast<double>(total) : 0;
}

double EvalReport::tokens_per_second() const {
  return seconds > 0 ? static_cast<double>(prompt_tokens + answer_tokens) / seconds : 0;
}

EvalVerdict judge(EvalTask task, const EvalRow& row, const std::string& answer) {
  EvalVerdict verdict;
  verdict.extracted = extract_answer(task, answer);
  verdict.expected = extract_answer(task, row.answer).value_or("");
  verdict.correct = verdict.extracted == verdict.expected;
  return verdict;
}

void count(EvalReport& report, const EvalAnswer& answer, const EvalVerdict& verdict) {
  ++report.total;
  report.correct += verdict.correct ? 1 : 0;
  report.prompt_tokens += answer.num_prompt_tokens;
  report.answer_tokens += answer.num_tokens;
  report.cut_off += answer.finish_reason == FinishReason::kLength ? 1 : 0;
}

std::string report_table(const EvalReport& report) {
  const Interval interval = wilson_interval(report.correct, report.total);
  const std::string task =
      report.num_fewshot > 0 ? fmt::format("{}, {}-shot", name_of(report.task), report.num_fewshot)
                             : std::string(name_of(report.task));
  constexpr const char* kLine =
      "| {:<14} | {:>8} | {:>14} | {:>13} | {:>13} | {:>13} | {:>8} | {:>9} |\n";
  std::string table = fmt::format(kLine, "task", "accuracy", "95% interval", "correct/total",
                                  "prompt tokens", "answer tokens", "seconds", "tokens/s");
  table += fmt::format(
      "| {:-<14} | {:->7}: | {:->13}: | {:->12}: | {:->12}: | {:->12}: | {:->7}: | {:->8}: |\n", "",
      "", "", "", "", "", "", "");
  table += fmt::format(kLine, task, fmt::format("{:.1f}%", 100 * report.accuracy()),
                       fmt::format("{:.1f}% - {:.1f}%", 100 * interval.low, 100 * interval.high),
                       fmt::format("{}/{}", report.correct, report.total), report.prompt_tokens,
                       report.answer_tokens, fmt::format("{:.1f}", report.seconds),
                       fmt::format("{:.1f}", report.tokens_per_second()));
  return table;
}

nlohmann::ordered_json to_json(const EvalReport& report) {
  const Interval interval = wilson_interval(report.correct, report.total);
  return {{"model", report.model},
          {"file", report.file},
          {"task", name_of(report.task)},
          {"num_fewshot", report.num_fewshot},
          {"chat_template", report.chat},
          {"accuracy", report.accuracy()},
          {"interval_95", {interval.low, interval.high}},
          {"correct", report.correct},
          {"total", report.total},
          {"cut_off", report.cut_off},
          {"prompt_tokens", report.prompt_tokens},
          {"completion_tokens", report.answer_tokens},
          {"seconds", report.seconds},
          {"tokens_per_second", report.tokens_per_second()}};
}

nlohmann::ordered_json answer_row(const EvalRow& row, const std::string& prompt,
                                  const EvalAnswer& answer, const EvalVerdict& verdict) {
  nlohmann::ordered_json extracted = nullptr;
  if (verdict.extracted) extracted = *verdict.extracted;
  return {{"line", row.line},
          {"prompt", prompt},
          {"generated", answer.text},
          {"extracted", std::move(extracted)},
          {"expected", verdict.expected},
          {"correct", verdict.correct},
          {"prompt_tokens", answer.num_prompt_tokens},
          {"completion_tokens", answer.num_tokens},
          {"finish_reason", name_of(answer.finish_reason)}};
}

}  // namespace millrace
