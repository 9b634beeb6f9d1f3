// What a model computes does not depend on what its cache and workspace held before: with NaN in
// every unused slot, scale and lane the bytes are the same.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/cpu.h"
#include "kernels/isa.h"
#include "layout_run.h"

namespace millrace {
namespace {

constexpr int64_t kNumGreedy = 3;
constexpr std::byte kPoison{0xff};

class PoisonedMemory : public ::testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    if (!has_numeric_class(GetParam().numeric_class)) GTEST_SKIP() << "no bf16 dot products here";
    const auto golden = read_golden_case(GetParam().model);
    ASSERT_TRUE(golden) << golden.error().message;
    folder_ = golden->folder;
    prompts_ = prompts_of_lengths(*golden, {1, 15, 16, 17, 48, 70});
  }

  Result<LoadedModel> load() const {
    EngineConfig engine = forward_config(prompts_, kNumGreedy);
    GetParam().set(engine);
    engine.block_size = 48;  // prompts leave slots of their last block unused
    engine.num_blocks = blocks_for_prompts(prompts_, kNumGreedy, engine.block_size) + 1;
    NoProgress progress;
    return load_model(folder_, engine, progress);
  }

  std::string run(ModelRunner& runner, int64_t chunk) const {
    NoProgress progress;
    const auto results =
        run_batch_forward(runner, prompts_, {.num_greedy = kNumGreedy, .chunk = chunk}, progress);
    EXPECT_TRUE(results) << results.error().message;
    return results ? bytes_of(*results) : "";
  }

  std::string folder_;
  std::vector<std::vector<int32_t>> prompts_;
};

TEST_P(PoisonedMemory, TheSameBytes) {
  const auto clean = load();
  ASSERT_TRUE(clean) << clean.error().message;
  const std::string expected = run(*clean->runner, 0);
  ASSERT_FALSE(expected.empty());
  const auto poisoned = load();
  ASSERT_TRUE(poisoned);
  poisoned->runner->fill_memory(kPoison);
  EXPECT_TRUE(run(*poisoned->runner, 0) == expected) << "cache";
  poisoned->runner->fill_memory(kPoison);  // now the workspace is there, too
  EXPECT_TRUE(run(*poisoned->runner, 0) == expected) << "cache and workspace";
  poisoned->runner->fill_memory(kPoison);
  EXPECT_TRUE(run(*poisoned->runner, 7) == expected) << "chunks of 7";
}

// Each instruction set has its own way with rows that do not fill its lanes.
TEST_P(PoisonedMemory, TheSameBytesByEveryInstructionSet) {
  if (GetParam().numeric_class == NumericClass::kBF16) {
    GTEST_SKIP() << "the class is the instruction's";
  }
  const auto clean = load();
  ASSERT_TRUE(clean) << clean.error().message;
  const std::string expected = run(*clean->runner, 0);
  for (const Isa isa : available_isas(detect_cpu_features())) {
    setenv("MILLRACE_ISA", std::string(name_of(isa)).c_str(), 1);
    const auto poisoned = load();
    unsetenv("MILLRACE_ISA");
    ASSERT_TRUE(poisoned);
    for (const int64_t chunk : {0, 7}) {
      poisoned->runner->fill_memory(kPoison);
      EXPECT_TRUE(run(*poisoned->runner, chunk) == expected)
          << name_of(isa) << ", chunks of " << chunk;
    }
  }
}

// What the test rests on: a slot that is read while poisoned shows.
TEST_P(PoisonedMemory, PoisonThatIsReadShows) {
  const auto model = load();
  ASSERT_TRUE(model) << model.error().message;
  const std::vector<int32_t>& ids = prompts_[4];
  const std::vector<int32_t> blocks = {2, 0};
  const auto begin = std::span(ids).first(40);
  const auto rest = std::span(ids).subspan(40, 1);
  const StepInput first{{{.token_ids = begin, .block_table = blocks}}};
  const StepInput second{{{.token_ids = rest, .num_computed = 40, .block_table = blocks}}};
  ASSERT_TRUE(model->runner->forward(first));
  const auto right = model->runner->forward(second);
  ASSERT_TRUE(right);
  EXPECT_TRUE(std::isfinite(right->row(0)[0]));
  model->runner->fill_memory(kPoison);
  const auto wrong = model->runner->forward(second);
  ASSERT_TRUE(wrong);
  EXPECT_TRUE(std::isnan(wrong->row(0)[0]));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, PoisonedMemory,
    ::testing::Values(Arithmetic{"llama_f32", "llama_gqa"},
                      Arithmetic{"llama_f16", "llama_gqa", DType::kF32, DType::kF16},
                      Arithmetic{"qwen3_bf16", "qwen3", DType::kF32, DType::kBF16},
                      Arithmetic{"qwen2_int8", "qwen2", DType::kF32, DType::kI8},
                      Arithmetic{"mixed_int8", "mixed_formats", DType::kBF16, DType::kI8,
                                 ActivationQuantization::kInt8},
                      Arithmetic{"qwen3_moe_f16", "qwen3_moe", DType::kF32, DType::kF16},
                      Arithmetic{"glm4_moe_int8", "glm4_moe", DType::kF32, DType::kI8},
                      Arithmetic{"deepseek_v3_f32", "deepseek_v3"},
                      Arithmetic{"deepseek_v3_bf16", "deepseek_v3", DType::kBF16, DType::kBF16},
                      Arithmetic{"deepseek_v32_f16", "deepseek_v32", DType::kF32, DType::kF16},
                      Arithmetic{"deepseek_v32_int8", "deepseek_v32", DType::kF32, DType::kI8,
                                 ActivationQuantization::kNone, NumericClass::kF32, DType::kBF16},
                      Arithmetic{"glm_shared_f32", "glm_moe_dsa_shared", DType::kF32, DType::kF32,
                                 ActivationQuantization::kNone, NumericClass::kF32, DType::kF32},
                      Arithmetic{"glm_shared_int8", "glm_moe_dsa_shared", DType::kF32, DType::kI8},
                      Arithmetic{"glm_shared_bf16_class", "glm_moe_dsa_shared", DType::kF32,
                                 DType::kBF16, ActivationQuantization::kNone, NumericClass::kBF16},
                      Arithmetic{"glm_fp16", "glm_moe_dsa_fp16", DType::kF16, DType::kF16}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace millrace
