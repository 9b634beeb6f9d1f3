// Rows whose logits nobody wants: the last layer leaves them out, and what is computed has the
// bytes that it has in a step where all logits are wanted.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/test_files.h"
#include "layout_run.h"

namespace millrace {
namespace {

constexpr int kBlockSize = 16;

// Prompts with the blocks of each.
struct Prompts {
  explicit Prompts(std::vector<std::vector<int32_t>> prompt_ids) : ids(std::move(prompt_ids)) {
    int32_t next = 0;
    for (const std::vector<int32_t>& prompt : ids) {
      blocks.emplace_back();
      for (size_t at = 0; at < prompt.size(); at += kBlockSize) blocks.back().push_back(next++);
    }
  }

  // Tokens [begin, end) of prompt i.
  SequenceInput input(size_t i, size_t begin, size_t end, LogitsRows logits) const {
    return {.token_ids = std::span(ids[i]).subspan(begin, end - begin),
            .num_computed = static_cast<int64_t>(begin),
            .block_table = blocks[i],
            .logits = logits};
  }
  SequenceInput input(size_t i, LogitsRows logits) const {
    return input(i, 0, ids[i].size(), logits);
  }

  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<int32_t>> blocks;
};

// The logits of a step, row after row; empty also if it failed, which is a failure of the test.
std::vector<float> logits_of(ModelRunner& runner, const StepInput& step) {
  const auto logits = runner.forward(step);
  EXPECT_TRUE(logits) << logits.error().message;
  if (!logits) return {};
  return {logits->rows, logits->rows + logits->num_rows * logits->vocab_size};
}

std::vector<float> last_row(const std::vector<float>& rows, int64_t vocab) {
  return {rows.end() - vocab, rows.end()};
}

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The multiply-adds of each step with a label, in order.
std::vector<double> costs_of(const Program& program, std::string_view label) {
  std::vector<double> costs;
  for (int64_t i = 0; i < program.num_steps(); ++i) {
    if (program.label(i) == label) costs.push_back(program.cost(i).multiply_adds);
  }
  return costs;
}

// What stands behind the attention of a layer, dense or a mixture of experts.
constexpr const char* kTailLabels[] = {"o_proj",      "gate_up",         "down_proj",
                                       "shared down", "experts gate_up", "experts down"};

class RowsThatNeedLogits : public ::testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    if (!has_numeric_class(GetParam().numeric_class)) GTEST_SKIP() << "no bf16 dot products here";
    const auto golden = read_golden_case(GetParam().model);
    ASSERT_TRUE(golden) << golden.error().message;
    prompts_.emplace(prompts_of_lengths(*golden, {5, 33, 24, 48, 1}));
    EngineConfig engine = forward_config(prompts_->ids, 1);
    engine.threads = 2;
    engine.block_size = kBlockSize;
    GetParam().set(engine);
    NoProgress progress;
    auto loaded = load_model(golden->folder, engine, progress);
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    for (size_t i = 0; i < prompts_->ids.size(); ++i) {
      all_.push_back(logits_of(runner(), {{prompts_->input(i, LogitsRows::kAll)}}));
    }
    // What comes must write its own cache.
    runner().fill_memory(std::byte{0xff});
  }

  ModelRunner& runner() { return *loaded_.runner; }
  int64_t vocab() { return runner().vocab_size(); }

  std::optional<Prompts> prompts_;
  LoadedModel loaded_;
  std::vector<std::vector<float>> all_;  // of each prompt
};

TEST_P(RowsThatNeedLogits, OfAllKindsInOneStep) {
  const StepInput step{{prompts_->input(0, LogitsRows::kLast),
                        prompts_->input(1, LogitsRows::kNone), prompts_->input(2, LogitsRows::kAll),
                        prompts_->input(3, LogitsRows::kLast),
                        prompts_->input(4, LogitsRows::kLast)}};
  std::vector<float> expected;
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    const LogitsRows wanted = step.sequences[i].logits;
    if (wanted == LogitsRows::kNone) continue;
    const auto rows = wanted == LogitsRows::kAll ? all_[i] : last_row(all_[i], vocab());
    expected.insert(expected.end(), rows.begin(), rows.end());
  }
  EXPECT_TRUE(same_bytes(logits_of(runner(), step), expected));
}

// As a long prompt is taken: chunks that nobody asks for logits of, then the last one.
TEST_P(RowsThatNeedLogits, OfTheLastChunk) {
  const StepInput first{{prompts_->input(1, 0, 20, LogitsRows::kNone)}};
  EXPECT_TRUE(logits_of(runner(), first).empty());
  const StepInput rest{{prompts_->input(1, 20, 33, LogitsRows::kLast)}};
  EXPECT_TRUE(same_bytes(logits_of(runner(), rest), last_row(all_[1], vocab())));
}

TEST_P(RowsThatNeedLogits, TheOthersCostNothing) {
  const auto costs = [&](LogitsRows wanted) {
    logits_of(runner(), {{prompts_->input(3, wanted)}});
    std::vector<std::vector<double>> by_label;
    for (const char* label : kTailLabels) {
      by_label.push_back(costs_of(runner().program(), label));
    }
    return by_label;
  };
  const auto all = costs(LogitsRows::kAll);
  const auto last = costs(LogitsRows::kLast);
  const auto none = costs(LogitsRows::kNone);
  const auto rows = static_cast<double>(prompts_->ids[3].size());
  const auto num_layers = static_cast<size_t>(loaded_.config.num_layers);
  EXPECT_EQ(all[0].size(), num_layers);
  EXPECT_EQ(none[0].size(), num_layers - 1);
  size_t steps_of_none = 0;
  size_t cheaper = 0;
  for (size_t label = 0; label < std::size(kTailLabels); ++label) {
    ASSERT_EQ(last[label].size(), all[label].size()) << kTailLabels[label];
    for (size_t i = 0; i < all[label].size(); ++i) {
      if (last[label][i] == all[label][i]) continue;
      EXPECT_EQ(last[label][i] * rows, all[label][i]) << kTailLabels[label];
      ++cheaper;
    }
    steps_of_none += all[label].size() - none[label].size();
  }
  // Output projection, gate and up, down; with experts two more of each, at most.
  EXPECT_GE(cheaper, 3u);
  EXPECT_EQ(steps_of_none, cheaper);
}

// A dump has all rows, whatever logits are wanted.
TEST_P(RowsThatNeedLogits, DumpsHaveAllRows) {
  runner().capture_hidden(true);
  runner().capture_topk(true);
  std::vector<float> hidden;
  std::vector<int32_t> topk;
  for (const LogitsRows wanted : {LogitsRows::kAll, LogitsRows::kLast, LogitsRows::kNone}) {
    logits_of(runner(), {{prompts_->input(1, wanted)}});
    const std::vector<float> rows(runner().hidden().begin(), runner().hidden().end());
    const std::vector<int32_t> positions(runner().topk().begin(), runner().topk().end());
    if (wanted == LogitsRows::kAll) {
      hidden = rows;
      topk = positions;
      ASSERT_FALSE(hidden.empty());
      continue;
    }
    EXPECT_TRUE(same_bytes(rows, hidden));
    EXPECT_EQ(positions, topk);
  }
  // Positions alone: the rows that nobody reads may go, their selections not.
  runner().capture_hidden(false);
  logits_of(runner(), {{prompts_->input(1, LogitsRows::kNone)}});
  EXPECT_EQ(std::vector<int32_t>(runner().topk().begin(), runner().topk().end()), topk);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RowsThatNeedLogits,
    ::testing::Values(Arithmetic{"llama", "llama_gqa", DType::kF32, DType::kF16},
                      Arithmetic{"llama_bf16_class", "llama_gqa", DType::kBF16, DType::kBF16,
                                 ActivationQuantization::kNone, NumericClass::kBF16},
                      Arithmetic{"mixed_int8", "mixed_formats", DType::kF32, DType::kF16,
                                 ActivationQuantization::kInt8},
                      Arithmetic{"qwen2", "qwen2", DType::kBF16, DType::kI8},
                      Arithmetic{"qwen3", "qwen3", DType::kF16, DType::kF16},
                      Arithmetic{"qwen3_moe", "qwen3_moe"},
                      Arithmetic{"glm4_moe", "glm4_moe", DType::kF32, DType::kI8},
                      Arithmetic{"deepseek_v3", "deepseek_v3"},
                      Arithmetic{"deepseek_v32", "deepseek_v32", DType::kF32, DType::kF16},
                      Arithmetic{"glm_shared", "glm_moe_dsa_shared", DType::kF32, DType::kI8},
                      Arithmetic{"glm_fp16", "glm_moe_dsa_fp16", DType::kF16, DType::kF16}),
    [](const auto& param) { return param.param.name; });

// The first layer is the last: what is done to the stream before its residual is added is done to
// the rows that stay (latent attention in fp16 divides it there).
TEST(OneLayer, LastRowOfAll) {
  for (const char* name : {"qwen3", "glm_moe_dsa_fp16"}) {
    const auto golden = read_golden_case(name);
    ASSERT_TRUE(golden) << golden.error().message;
    auto config = nlohmann::json::parse(std::ifstream(golden->folder + "/config.json"));
    config["num_hidden_layers"] = 1;
    if (config.contains("first_k_dense_replace")) config["first_k_dense_replace"] = 0;
    for (const char* list : {"layer_types", "indexer_types"}) {
      if (config.contains(list)) config[list] = {config[list][0]};
    }
    if (config.contains("mlp_layer_types")) config["mlp_layer_types"] = {"sparse"};
    const testing::TempFolder folder;
    std::ofstream(folder.file("config.json")) << config;
    const Prompts prompts(prompts_of_lengths(*golden, {33}));
    EngineConfig engine = forward_config(prompts.ids, 1);
    engine.load_format = LoadFormat::kDummy;
    engine.dtype = DType::kF16;
    NoProgress progress;
    const auto model = load_model(folder.path(), engine, progress);
    ASSERT_TRUE(model) << model.error().message;
    ModelRunner& runner = *model->runner;
    const auto all = logits_of(runner, {{prompts.input(0, LogitsRows::kAll)}});
    const auto last = logits_of(runner, {{prompts.input(0, LogitsRows::kLast)}});
    EXPECT_TRUE(same_bytes(last, last_row(all, runner.vocab_size()))) << name;
  }
}

// Gate and up write what down reads: no step between them, but where int8 is to be quantised.
TEST(PackedOutputs, AreWrittenByGateAndUp) {
  const auto after_gate_up = [](const char* name, ActivationQuantization activations) {
    const auto golden = read_golden_case(name);
    EXPECT_TRUE(golden);
    const Prompts prompts(prompts_of_lengths(*golden, {24}));
    EngineConfig engine = forward_config(prompts.ids, 1);
    engine.activation_quantization = activations;
    NoProgress progress;
    const auto model = load_model(golden->folder, engine, progress);
    EXPECT_TRUE(model);
    logits_of(*model->runner, {{prompts.input(0, LogitsRows::kAll)}});
    const Program& program = model->runner->program();
    std::vector<std::string> labels;
    for (int64_t i = 0; i + 1 < program.num_steps(); ++i) {
      if (std::string_view(program.label(i)) == "gate_up") labels.push_back(program.label(i + 1));
    }
    return labels;
  };
  using Labels = std::vector<std::string>;
  EXPECT_EQ(after_gate_up("mixed_formats", ActivationQuantization::kNone),
            (Labels{"down_proj", "down_proj"}));
  EXPECT_EQ(after_gate_up("mixed_formats", ActivationQuantization::kInt8),
            (Labels{"pack", "pack"}));
  for (const std::string& label : after_gate_up("llama_gqa", ActivationQuantization::kNone)) {
    EXPECT_EQ(label, "down_proj");
  }
}

}  // namespace
}  // namespace millrace
