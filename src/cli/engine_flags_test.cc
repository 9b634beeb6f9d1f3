#include "cli/engine_flags.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// The configuration that a command line gives, or the error of parse().
Result<EngineConfig> parsed(std::string line) {
  CLI::App app;
  EngineFlags flags;
  add_engine_flags(app, flags);
  app.parse(std::move(line));
  return flags.parse(Purpose::kGenerate);
}

TEST(EngineFlags, NothingTypedIsTheDefault) {
  const auto config = parsed("");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->max_num_seqs, EngineConfig().max_num_seqs);
  EXPECT_EQ(config->block_size, EngineConfig().block_size);
  EXPECT_FALSE(config->max_model_len);
  EXPECT_FALSE(config->num_blocks);
}

TEST(EngineFlags, ZeroIsNotAuto) {
  for (const char* line : {"--max-num-seqs 0", "--block-size 0", "--num-blocks 0"}) {
    const auto config = parsed(line);
    ASSERT_FALSE(config) << line;
    EXPECT_NE(config.error().message.find("found 0"), std::string::npos) << config.error().message;
  }
  EXPECT_FALSE(resolve_max_num_batched_tokens(parsed("--max-num-batched-tokens 0").value()));
  ModelConfig model;
  model.max_position_embeddings = 100;
  EXPECT_FALSE(resolve_max_model_len(parsed("--max-model-len 0").value(), model));
}

TEST(EngineFlags, SequencesFollowTheTokensOfAStep) {
  const auto few = parsed("--max-num-batched-tokens 8");
  ASSERT_TRUE(few) << few.error().message;
  EXPECT_EQ(few->max_num_seqs, 8);
  EXPECT_EQ(resolve_max_num_batched_tokens(*few).value(), 8);
  // Both typed: the contradiction is told.
  const auto both = parsed("--max-num-batched-tokens 8 --max-num-seqs 9");
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_FALSE(resolve_max_num_batched_tokens(*both));
  EngineFlags flags;
  EXPECT_EQ(flags.num_seqs_for(5), 5);
  EXPECT_EQ(flags.num_seqs_for(1 << 20), kMaxNumSeqs);
  flags.max_num_seqs = 3;
  EXPECT_EQ(flags.num_seqs_for(5), 3);
}

}  // namespace
}  // namespace millrace
