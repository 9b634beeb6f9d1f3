// Dense architectures against transformers in float64 (tests/data/golden).
#include <gtest/gtest.h>

#include "golden_case.h"

namespace millrace {
namespace {

struct DenseCase {
  const char* name;
  double f32_error;  // transformers' own float32 error in the logits; ours may be 4 times that
};

std::ostream& operator<<(std::ostream& out, const DenseCase& c) { return out << c.name; }

class DenseGolden : public testing::TestWithParam<DenseCase> {};

constexpr int64_t kNumGreedy = 24;

TEST_P(DenseGolden, LogitsAndGreedyInFloat32) {
  const auto golden = read_golden_case(GetParam().name);
  ASSERT_TRUE(golden) << golden.error().message;
  const auto prompts = golden->prompt_ids();
  for (const bool one_by_one : {false, true}) {
    const auto results = run_prompts(golden->folder, forward_config(prompts, kNumGreedy), prompts,
                                     {.num_greedy = kNumGreedy, .one_by_one = one_by_one});
    ASSERT_TRUE(results) << results.error().message;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const GoldenPrompt& expected = golden->prompts[i];
      EXPECT_LE(max_abs_difference((*results)[i].logits, expected.logits), 4 * GetParam().f32_error)
          << "prompt " << i;
      ASSERT_EQ(expected.greedy.size(), static_cast<size_t>(kNumGreedy));
      EXPECT_EQ((*results)[i].greedy, expected.greedy) << "prompt " << i;
    }
  }
}

// The cases were chosen so that a run whose activations are 16 bits finds the same tokens.
TEST_P(DenseGolden, GreedyInSixteenBits) {
  const auto golden = read_golden_case(GetParam().name);
  ASSERT_TRUE(golden) << golden.error().message;
  const auto prompts = golden->prompt_ids();
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    EngineConfig engine = forward_config(prompts, kNumGreedy);
    engine.dtype = dtype;
    const auto results = run_prompts(golden->folder, engine, prompts, {.num_greedy = kNumGreedy});
    ASSERT_TRUE(results) << results.error().message;
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ((*results)[i].greedy, golden->prompts[i].greedy)
          << name_of(dtype) << " prompt " << i;
    }
  }
}

// One matrix of each weight format, expanded exactly; expected values in float64 from the weights
// as another implementation dequantises them (make_mixed_gguf.py).
TEST(MixedFormats, LogitsAndGreedyInExactMode) {
  constexpr int64_t kGreedy = 16;
  const auto golden = read_golden_case("mixed_formats");
  ASSERT_TRUE(golden) << golden.error().message;
  const auto prompts = golden->prompt_ids();
  const auto results = run_prompts(golden->folder, forward_config(prompts, kGreedy), prompts,
                                   {.num_greedy = kGreedy});
  ASSERT_TRUE(results) << results.error().message;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_LE(max_abs_difference((*results)[i].logits, golden->prompts[i].logits), 1e-4)
        << "prompt " << i;
    EXPECT_EQ((*results)[i].greedy, golden->prompts[i].greedy) << "prompt " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DenseGolden,
                         testing::Values(DenseCase{"llama_gqa", 2.3e-5},
                                         DenseCase{"llama_tied_rope3", 2.6e-5},
                                         DenseCase{"qwen2", 1.6e-5}, DenseCase{"qwen3", 1.8e-5}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace millrace
