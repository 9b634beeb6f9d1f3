#include "runtime/model_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/load_model.h"

namespace millrace {
namespace {

class Runner : public testing::Test {
 protected:
  void SetUp() override {
    EngineConfig engine;
    engine.purpose = Purpose::kForward;
    engine.threads = 2;
    engine.max_num_seqs = 2;
    engine.max_num_batched_tokens = 40;
    engine.max_model_len = 64;
    engine.num_blocks = 8;
    NoProgress progress;
    auto loaded = load_model(std::string(MILLRACE_TEST_DATA) + "/golden/qwen3", engine, progress);
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
  }

  std::string error_of(const StepInput& input) {
    const auto logits = loaded_.runner->forward(input);
    return logits ? "" : logits.error().message;
  }

  LoadedModel loaded_;
  const std::vector<int32_t> ids_ = {5, 6, 7};
  const std::vector<int32_t> blocks_ = {3, 1};
};

TEST_F(Runner, RefusesStepsThatDoNotFit) {
  const auto vocab = static_cast<int32_t>(loaded_.runner->vocab_size());
  const std::vector<int32_t> many(41, 5);
  const std::vector<int32_t> four_blocks = {0, 1, 2, 3};
  const std::vector<int32_t> outside = {5, vocab};
  const std::vector<int32_t> no_such_block = {8};
  EXPECT_EQ(error_of({{{.token_ids = many, .block_table = four_blocks}}}),
            "step of 41 tokens; at most 40 fit (max_num_batched_tokens)");
  EXPECT_EQ(error_of({{{.token_ids = ids_, .block_table = blocks_},
                       {.token_ids = ids_, .block_table = blocks_},
                       {.token_ids = ids_, .block_table = blocks_}}}),
            "step of 3 sequences; at most 2 fit (max_num_seqs)");
  EXPECT_EQ(error_of({{{.token_ids = outside, .block_table = blocks_}}}),
            fmt::format("token id {} is outside the vocabulary of {}", vocab, vocab));
  EXPECT_EQ(error_of({{{.token_ids = ids_, .num_computed = 30, .block_table = blocks_}}}),
            "step: block table of 32 positions for a sequence of 33");
  EXPECT_EQ(error_of({{{.token_ids = ids_, .block_table = no_such_block}}}),
            "step: block 8 is outside the pool of 8");
  EXPECT_EQ(error_of({{{.token_ids = {}, .block_table = blocks_}}}),
            "step: a sequence with 0 tokens after 0; at least one token is needed");
}

TEST_F(Runner, GivesTheLogitsThatAreAskedFor) {
  const StepInput input{{{.token_ids = ids_, .block_table = blocks_, .logits = LogitsRows::kAll}}};
  const auto all = loaded_.runner->forward(input);
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->num_rows, 3);
  const std::vector<float> last(all->row(2).begin(), all->row(2).end());

  StepInput one = input;
  one.sequences[0].logits = LogitsRows::kLast;
  const auto only_last = loaded_.runner->forward(one);
  ASSERT_TRUE(only_last);
  ASSERT_EQ(only_last->num_rows, 1);
  EXPECT_EQ(std::vector<float>(only_last->row(0).begin(), only_last->row(0).end()), last);

  one.sequences[0].logits = LogitsRows::kNone;
  const auto none = loaded_.runner->forward(one);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->num_rows, 0);
  const auto empty = loaded_.runner->forward({});
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->num_rows, 0);
}

TEST_F(Runner, PlansOnceAndKeepsTheHiddenStates) {
  loaded_.runner->capture_hidden(true);
  ASSERT_TRUE(loaded_.runner->forward({{{.token_ids = ids_, .block_table = blocks_}}}));
  const ModelConfig& config = loaded_.config;
  EXPECT_EQ(loaded_.runner->hidden().size(), static_cast<size_t>(config.num_layers) * ids_.size() *
                                                 static_cast<size_t>(config.hidden_size));
  for (const float value : loaded_.runner->hidden()) EXPECT_TRUE(std::isfinite(value));
  EXPECT_GT(loaded_.runner->program().num_steps(), config.num_layers * 5);
  EXPECT_GT(loaded_.runner->program().total_cost().multiply_adds, 0);
}

// Counts pieces of work that were begun.
class CountingProgress final : public Progress {
 public:
  void begin(const std::string&, int64_t, bool) override { ++begun; }
  void advance(int64_t) override {}
  void end() override {}
  int begun = 0;
};

TEST(LoadModel, RefusesOptionsBeforeItPacks) {
  const std::string path = std::string(MILLRACE_TEST_DATA) + "/golden/qwen3";
  CountingProgress progress;
  EngineConfig engine;
  engine.max_model_len = 64;
  engine.num_blocks = 3;
  EXPECT_EQ(load_model(path, engine, progress).error().message,
            "--num-blocks: 3 blocks hold 48 tokens, one sequence of --max-model-len 64 needs 4 "
            "blocks");
  engine.num_blocks.reset();
  engine.max_num_seqs = 1 << 24;
  EXPECT_EQ(load_model(path, engine, progress).error().message,
            "--max-num-seqs: found 16777216, expected 1 to 4096");
  EXPECT_EQ(progress.begun, 0);
  engine.max_num_seqs = 1;
  EXPECT_TRUE(load_model(path, engine, progress));
  EXPECT_GT(progress.begun, 0);
}

}  // namespace
}  // namespace millrace
