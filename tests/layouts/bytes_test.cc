// Whole models give the same bytes whatever the threads, batch, chunks, block size and instruction
// set: for each type of activations and cache, in exact and int8 mode; of indexers, each type of
// keys.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "base/cpu.h"
#include "kernels/isa.h"
#include "layout_run.h"

namespace millrace {
namespace {

constexpr int64_t kNumGreedy = 3;

// How it is computed.
struct Layout {
  int threads = 1;
  int64_t chunk = 0;
  bool one_by_one = false;
  int block_size = 16;
  const char* isa = nullptr;  // null: the best
};

// 16 prompts of 1 to 150 tokens, cut from those of a golden case.
std::vector<std::vector<int32_t>> mixed_prompts(const GoldenCase& golden) {
  const std::vector<int32_t>& longest = golden.prompts.back().ids;
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < 16; ++i) {
    const size_t length = std::min(longest.size(), i == 15 ? longest.size() : 1 + i * i / 2);
    const size_t begin = (i * 7) % (longest.size() - length + 1);
    prompts.emplace_back(longest.begin() + static_cast<ptrdiff_t>(begin),
                         longest.begin() + static_cast<ptrdiff_t>(begin + length));
  }
  return prompts;
}

// All logits and continuations of all prompts, one after the other, as bytes.
std::string run(const GoldenCase& golden, const std::vector<std::vector<int32_t>>& prompts,
                const Arithmetic& arithmetic, const Layout& layout) {
  EngineConfig engine = forward_config(prompts, kNumGreedy);
  arithmetic.set(engine);
  engine.threads = layout.threads;
  engine.block_size = layout.block_size;
  engine.num_blocks = blocks_for_prompts(prompts, kNumGreedy, layout.block_size);
  if (layout.isa != nullptr) setenv("MILLRACE_ISA", layout.isa, 1);
  const auto results = run_prompts(
      golden.folder, engine, prompts,
      {.num_greedy = kNumGreedy, .chunk = layout.chunk, .one_by_one = layout.one_by_one});
  unsetenv("MILLRACE_ISA");
  EXPECT_TRUE(results) << results.error().message;
  std::string bytes;
  if (!results) return bytes;
  for (const PromptResult& result : *results) {
    bytes.append(reinterpret_cast<const char*>(result.logits.data()), result.logits.size() * 4);
    bytes.append(reinterpret_cast<const char*>(result.greedy.data()), result.greedy.size() * 4);
  }
  return bytes;
}

class Bytes : public testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    const auto golden = read_golden_case(GetParam().model);
    ASSERT_TRUE(golden) << golden.error().message;
    golden_ = *golden;
    prompts_ = mixed_prompts(golden_);
    if (!has_numeric_class(GetParam().numeric_class)) GTEST_SKIP() << "no bf16 dot products here";
    expected_ = run(golden_, prompts_, GetParam(), {});
    ASSERT_FALSE(expected_.empty());
  }

  void expect_same(const Layout& layout, const char* what) {
    const std::string bytes = run(golden_, prompts_, GetParam(), layout);
    ASSERT_EQ(bytes.size(), expected_.size());
    EXPECT_TRUE(bytes == expected_) << what;
  }

  GoldenCase golden_;
  std::vector<std::vector<int32_t>> prompts_;
  std::string expected_;
};

TEST_P(Bytes, Threads) {
  expect_same({.threads = 2}, "2 threads");
  expect_same({.threads = 3}, "3 threads");
  expect_same({.threads = 5}, "5 threads");
}

TEST_P(Bytes, BatchAndChunks) {
  expect_same({.threads = 2, .one_by_one = true}, "one prompt at a time");
  expect_same({.threads = 2, .chunk = 1, .one_by_one = true}, "one token at a time");
  expect_same({.threads = 2, .chunk = 7}, "chunks of 7");
  expect_same({.threads = 2, .chunk = 64}, "chunks of 64");
}

TEST_P(Bytes, BlockSizes) {
  expect_same({.threads = 2, .block_size = 32}, "blocks of 32");
  expect_same({.threads = 2, .chunk = 7, .block_size = 64}, "blocks of 64, chunks of 7");
}

TEST_P(Bytes, InstructionSets) {
  if (GetParam().numeric_class == NumericClass::kBF16) {
    GTEST_SKIP() << "the class is the instruction's";
  }
  const auto isas = available_isas(detect_cpu_features());
  for (const Isa isa : isas) {
    expect_same({.threads = 2, .isa = name_of(isa).data()}, name_of(isa).data());
  }
}

std::vector<Arithmetic> arithmetics() {
  std::vector<Arithmetic> all;
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  const DType caches[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8};
  // Every type of cache and of activations with both modes; not every pair of the two.
  for (const auto quantization : {ActivationQuantization::kNone, ActivationQuantization::kInt8}) {
    const char* mode = quantization == ActivationQuantization::kNone ? "exact" : "int8";
    for (size_t i = 0; i < 4; ++i) {
      const DType dtype = types[i % 3];
      all.push_back({fmt::format("mixed_{}_{}_{}", mode, name_of(dtype), name_of(caches[i])),
                     "mixed_formats", dtype, caches[i], quantization});
    }
  }
  all.push_back({"llama", "llama_gqa", DType::kF32, DType::kF16});
  all.push_back({"llama_bf16_class", "llama_gqa", DType::kBF16, DType::kBF16,
                 ActivationQuantization::kNone, NumericClass::kBF16});
  // All three kinds of activations in one layer: int8, bf16 and, for F16 weights, fp32.
  all.push_back({"mixed_bf16_class", "mixed_formats", DType::kF32, DType::kF16,
                 ActivationQuantization::kInt8, NumericClass::kBF16});
  // Gate and up read fp32 here, down bf16: their outputs are packed in another kind.
  all.push_back({"mixed_bf16_class_exact", "mixed_formats", DType::kF32, DType::kF16,
                 ActivationQuantization::kNone, NumericClass::kBF16});
  all.push_back({"qwen2", "qwen2", DType::kBF16, DType::kI8});
  all.push_back({"qwen3", "qwen3", DType::kF16, DType::kF16});
  // Mixtures of experts, latent attention, sparse attention with each type of index keys.
  const auto none = ActivationQuantization::kNone;
  const auto f32_class = NumericClass::kF32;
  all.push_back({"qwen3_moe", "qwen3_moe", DType::kF32, DType::kF16});
  all.push_back({"glm4_moe", "glm4_moe", DType::kBF16, DType::kI8});
  all.push_back({"deepseek_v3", "deepseek_v3", DType::kF32, DType::kF32});
  all.push_back({"deepseek_v3_fp16", "deepseek_v3", DType::kF16, DType::kI8});
  all.push_back({"deepseek_v32", "deepseek_v32", DType::kF32, DType::kF16});
  all.push_back(
      {"glm_shared", "glm_moe_dsa_shared", DType::kF32, DType::kF32, none, f32_class, DType::kF32});
  all.push_back({"glm_shared_bf16", "glm_moe_dsa_shared", DType::kBF16, DType::kBF16, none,
                 f32_class, DType::kBF16});
  // Latents by bf16 dot products, dense and sparse.
  all.push_back({"deepseek_v3_bf16_class", "deepseek_v3", DType::kBF16, DType::kBF16, none,
                 NumericClass::kBF16});
  all.push_back({"glm_shared_bf16_class", "glm_moe_dsa_shared", DType::kF32, DType::kBF16, none,
                 NumericClass::kBF16, DType::kI8});
  all.push_back({"glm_fp16", "glm_moe_dsa_fp16", DType::kF16, DType::kI8});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Bytes, testing::ValuesIn(arithmetics()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace millrace
