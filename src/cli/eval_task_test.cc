#include "cli/eval_task.h"

#include <gtest/gtest.h>

#include "cli/eval_prompt.h"
#include "cli/eval_report.h"
#include "io/test_files.h"

namespace millrace {
namespace {

using testing::TempFolder;

Result<EvalSet> read(std::string_view text, std::optional<EvalTask> task = {},
                     std::optional<int64_t> limit = {}) {
  const TempFolder folder;
  auto set = read_eval_set(folder.write("rows.jsonl", text), task, limit);
  if (set) return set;
  return fail("{}", set.error().message.substr(folder.path().size() + 1));
}

TEST(EvalTask, TheFieldsTellTheTask) {
  const auto needle = read("{\"prompt\": \"P\", \"answer\": \"4821\", \"other\": 1}\n");
  ASSERT_TRUE(needle) << needle.error().message;
  EXPECT_EQ(needle->task, EvalTask::kNeedle);
  EXPECT_EQ(needle->rows[0].question, "P");
  const auto gsm8k = read("\n{\"question\": \"Q\", \"answer\": \"So.\\n#### 1,234\"}\n");
  ASSERT_TRUE(gsm8k) << gsm8k.error().message;
  EXPECT_EQ(gsm8k->task, EvalTask::kGsm8k);
  EXPECT_EQ(gsm8k->rows[0].line, 2);
  const std::string both = "{\"question\": \"Q\", \"prompt\": \"P\", \"answer\": \"4\"}\n";
  EXPECT_EQ(read(both).error().message,
            "rows.jsonl, line 1: the row has \"prompt\" and \"question\"; --task needle or --task "
            "gsm8k chooses");
  EXPECT_EQ(read(both, EvalTask::kGsm8k)->rows[0].question, "Q");
}

TEST(EvalTask, BadRowsAreNamedWithWhatWasExpected) {
  EXPECT_EQ(read("{\"text\": \"P\"}\n").error().message,
            "rows.jsonl, line 1: the row has neither \"prompt\" nor \"question\"; expected "
            "\"prompt\" and \"answer\" (needle), or \"question\" and \"answer\" (gsm8k)");
  const std::string good = "{\"question\": \"Q\", \"answer\": \"#### 1\"}\n";
  EXPECT_EQ(read(good + "{\"question\": \"Q\"}\n").error().message,
            "rows.jsonl, line 2: the row has no \"answer\"; a row of gsm8k has the texts "
            "\"question\" and \"answer\"");
  EXPECT_EQ(read(good + "{\"question\": 5, \"answer\": \"#### 1\"}\n").error().message,
            "rows.jsonl, line 2: \"question\" is a number; expected a string; a row of gsm8k has "
            "the texts \"question\" and \"answer\"");
  EXPECT_EQ(read(good + "{\"question\": \"Q\", \"answer\": \"none\"}\n").error().message,
            "rows.jsonl, line 2: \"answer\" has no number; expected one at its end, after "
            "\"####\"");
  EXPECT_EQ(read(good + "{\"question\": \" \", \"answer\": \"1\"}\n").error().message,
            "rows.jsonl, line 2: \"question\" is empty; expected a text");
  EXPECT_TRUE(read(good + "[1]\n").error().message.starts_with("rows.jsonl, line 2: "));
  EXPECT_TRUE(read(good + "{\n").error().message.starts_with("rows.jsonl, line 2: "));
  EXPECT_EQ(read("\n\n").error().message, "rows.jsonl: no rows; expected one JSON object a line");
  EXPECT_FALSE(read_eval_set("/no/such.jsonl", {}, {}));
}

TEST(EvalTask, ALimitTakesTheFirstRows) {
  const std::string rows =
      "{\"prompt\": \"A\", \"answer\": \"1\"}\n{\"prompt\": \"B\", \"answer\": \"2\"}\n"
      "{\"not\": \"a row\"}\n";
  EXPECT_EQ(read(rows, {}, 2)->rows.size(), 2U);
  EXPECT_FALSE(read(rows, {}, 3));
  EXPECT_EQ(read(rows.substr(0, rows.find('\n')), {}, 100)->rows.size(), 1U);
}

TEST(EvalTask, Names) {
  EXPECT_EQ(*parse_eval_task("needle"), EvalTask::kNeedle);
  EXPECT_EQ(*parse_eval_task("gsm8k"), EvalTask::kGsm8k);
  EXPECT_EQ(parse_eval_task("mmlu").error().message,
            "--task mmlu: unknown; choose from needle, gsm8k");
}

const std::vector<EvalRow> kExamples = {
    {1, "Q0", "#### 0"}, {2, "Q1", "#### 1"}, {3, "Q2", "#### 2"}, {4, "Q3", "#### 3"}};

std::string chosen(FewshotSettings settings, size_t index, std::string_view question) {
  const auto examples = choose_examples(kExamples, settings, index, question);
  if (!examples) return examples.error().message;
  std::string names;
  for (const EvalRow* example : *examples) names += example->question;
  return names;
}

TEST(EvalPrompt, ExamplesRotate) {
  const FewshotSettings three = {3, FewshotOrder::kRotate};
  EXPECT_EQ(chosen(three, 0, "Q"), "Q0Q1Q2");
  EXPECT_EQ(chosen(three, 1, "Q"), "Q3Q0Q1");
  EXPECT_EQ(chosen(three, 2, "Q"), "Q2Q3Q0");
  EXPECT_EQ(chosen(three, 4, "Q"), "Q0Q1Q2");
  EXPECT_EQ(chosen({3, FewshotOrder::kFirst}, 1, "Q"), "Q0Q1Q2");
  EXPECT_EQ(chosen({0}, 1, "Q"), "");
}

TEST(EvalPrompt, ExamplesNeverShowTheQuestionItself) {
  EXPECT_EQ(chosen({3, FewshotOrder::kRotate}, 0, "Q1"), "Q0Q2Q3");
  EXPECT_EQ(chosen({3, FewshotOrder::kFirst}, 7, "Q0"), "Q1Q2Q3");
  EXPECT_EQ(chosen({4, FewshotOrder::kFirst}, 0, "Q0"),
            "3 examples besides the question itself; --num-fewshot asks for 4");
  EXPECT_EQ(chosen({5}, 0, "Q"),
            "4 examples besides the question itself; --num-fewshot asks for 5");
  for (size_t index = 0; index < 50; ++index) {
    const std::string names = chosen({3, FewshotOrder::kRandom, 1}, index, "Q2");
    EXPECT_EQ(names.size(), 6U);
    EXPECT_EQ(names.find("Q2"), std::string::npos);
  }
}

TEST(EvalPrompt, RandomExamplesDependOnSeedAndQuestion) {
  const auto all = [](uint64_t seed) {
    std::string names;
    for (size_t i = 0; i < 20; ++i) names += chosen({2, FewshotOrder::kRandom, seed}, i, "Q");
    return names;
  };
  EXPECT_EQ(all(1), all(1));
  EXPECT_NE(all(1), all(2));
  EXPECT_NE(chosen({4, FewshotOrder::kRandom, 1}, 0, "Q"),
            chosen({4, FewshotOrder::kRandom, 1}, 1, "Q"));
}

TEST(EvalPrompt, Texts) {
  const std::vector<const EvalRow*> two = {&kExamples[0], &kExamples[1]};
  EXPECT_EQ(eval_prompt(EvalTask::kNeedle, true, "P", {}), "P");
  EXPECT_EQ(eval_prompt(EvalTask::kNeedle, false, "P", {}), "P");
  EXPECT_EQ(eval_prompt(EvalTask::kGsm8k, true, "Q", {}), "Q");
  EXPECT_EQ(eval_prompt(EvalTask::kGsm8k, false, "Q", {}), "Question: Q\nAnswer:");
  const std::string shots =
      "Question: Q0\nAnswer: #### 0\n\nQuestion: Q1\nAnswer: #### 1\n\nQuestion: Q\nAnswer:";
  EXPECT_EQ(eval_prompt(EvalTask::kGsm8k, true, "Q", two), shots);
  EXPECT_EQ(eval_prompt(EvalTask::kGsm8k, false, "Q", two), shots);
  EXPECT_EQ(eval_stops(EvalTask::kGsm8k, false), std::vector<std::string>{"Question"});
  EXPECT_TRUE(eval_stops(EvalTask::kGsm8k, true).empty());
  EXPECT_TRUE(eval_stops(EvalTask::kNeedle, false).empty());
  EXPECT_EQ(parse_fewshot_order("shuffled").error().message,
            "--fewshot-order shuffled: unknown; choose from rotate, first, random");
}

TEST(EvalReport, Verdicts) {
  const EvalRow needle = {1, "P", "0753"};
  EXPECT_TRUE(judge(EvalTask::kNeedle, needle, " 0753\n").correct);
  EXPECT_FALSE(judge(EvalTask::kNeedle, needle, "753").correct);
  EXPECT_FALSE(judge(EvalTask::kNeedle, needle, "0753.").correct);
  const EvalRow problem = {1, "Q", "6*3=18\n#### 18"};
  EXPECT_TRUE(judge(EvalTask::kGsm8k, problem, "It is $18.00.").correct);
  EXPECT_FALSE(judge(EvalTask::kGsm8k, problem, "18, no, 19").correct);
  EXPECT_FALSE(judge(EvalTask::kGsm8k, problem, "I do not know.").correct);
  EXPECT_EQ(judge(EvalTask::kGsm8k, problem, "").expected, "18");
}

TEST(EvalReport, CountsAndForms) {
  EvalReport report;
  report.task = EvalTask::kGsm8k;
  report.num_fewshot = 4;
  report.seconds = 2;
  const EvalRow row = {3, "Q", "#### 18"};
  const EvalAnswer right = {"#### 18", 100, 10, FinishReason::kStop};
  const EvalAnswer wrong = {"so", 80, 10, FinishReason::kLength};
  count(report, right, judge(report.task, row, right.text));
  count(report, wrong, judge(report.task, row, wrong.text));
  const auto json = to_json(report);
  EXPECT_EQ(json["accuracy"], 0.5);
  EXPECT_EQ(json["correct"], 1);
  EXPECT_EQ(json["total"], 2);
  EXPECT_EQ(json["cut_off"], 1);
  EXPECT_EQ(json["tokens_per_second"], 100.0);
  EXPECT_NEAR(json["interval_95"][0].get<double>(), 0.094531, 1e-6);
  const std::string table = report_table(report);
  EXPECT_NE(table.find("| gsm8k, 4-shot  |    50.0% |   9.5% - 90.5% |           1/2 |"),
            std::string::npos)
      << table;
  const auto line = answer_row(row, "the prompt", wrong, judge(report.task, row, wrong.text));
  EXPECT_EQ(line.dump(),
            "{\"line\":3,\"prompt\":\"the prompt\",\"generated\":\"so\",\"extracted\":null,"
            "\"expected\":\"18\",\"correct\":false,\"prompt_tokens\":80,\"completion_tokens\":10,"
            "\"finish_reason\":\"length\"}");
  EXPECT_EQ(EvalReport().accuracy(), 0);
}

}  // namespace
}  // namespace millrace
