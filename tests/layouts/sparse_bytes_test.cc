// Sparse models give the same bytes in every layout: prompts around index_topk, every type of cache
// with every type of index keys, experts that get every token; and up to index_topk tokens the same
// bytes as dense attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <utility>

#include "base/cpu.h"
#include "kernels/isa.h"
#include "layout_run.h"
#include "weights/test_models.h"
#include "weights/test_quantized.h"

namespace millrace {
namespace {

using ::millrace::testing::ChangedModel;

constexpr size_t kTopk = 16;  // of the golden models
constexpr int64_t kNumGreedy = 3;

GoldenCase golden(const char* name) {
  auto read = read_golden_case(name);
  EXPECT_TRUE(read) << read.error().message;
  return read ? *read : GoldenCase{};
}

// Chunks and blocks; blocks of 48 hold whole numbers of neither chunk nor index_topk.
std::vector<RunLayout> layouts() {
  std::vector<RunLayout> all;
  for (const int block_size : {16, 48}) {
    for (const int64_t chunk : {1, 7, 64, 0}) {
      for (const bool one_by_one : {false, true}) {
        all.push_back({.name = fmt::format("chunks of {}, blocks of {}, {}", chunk, block_size,
                                           one_by_one ? "one by one" : "a batch"),
                       .chunk = chunk,
                       .one_by_one = one_by_one,
                       .block_size = block_size});
      }
    }
  }
  return all;
}

TEST(SparseBytes, LengthsAroundTopk) {
  for (const char* name : {"deepseek_v32", "glm_moe_dsa_shared"}) {
    SCOPED_TRACE(name);
    const GoldenCase model = golden(name);
    const auto prompts = prompts_of_lengths(model, {1, kTopk - 1, kTopk, kTopk + 1, 3 * kTopk});
    EngineConfig engine = forward_config(prompts, kNumGreedy);
    engine.indexer_dtype = DType::kI8;
    const std::string expected =
        run_bytes(model.folder, engine, prompts, kNumGreedy, {.threads = 1, .one_by_one = true});
    ASSERT_FALSE(expected.empty());
    for (const RunLayout& layout : layouts()) {
      EXPECT_TRUE(run_bytes(model.folder, engine, prompts, kNumGreedy, layout) == expected)
          << layout.name;
    }
  }
}

TEST(SparseBytes, EveryCacheWithEveryIndexer) {
  const GoldenCase model = golden("glm_moe_dsa_shared");
  const auto prompts = prompts_of_lengths(model, {5, kTopk + 1, 100});
  std::set<std::string> different;
  for (const DType cache : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    for (const DType indexer : {DType::kF32, DType::kBF16, DType::kI8}) {
      SCOPED_TRACE(fmt::format("cache {}, indexer {}", name_of(cache), name_of(indexer)));
      EngineConfig engine = forward_config(prompts, kNumGreedy);
      engine.kv_cache_dtype = cache;
      engine.indexer_dtype = indexer;
      const std::string whole =
          run_bytes(model.folder, engine, prompts, kNumGreedy, {.threads = 1});
      const std::string cut = run_bytes(model.folder, engine, prompts, kNumGreedy,
                                        {.chunk = 7, .one_by_one = true, .block_size = 48});
      ASSERT_FALSE(whole.empty());
      EXPECT_TRUE(whole == cut);
      different.insert(whole);
    }
  }
  EXPECT_EQ(different.size(), 12u);  // each pair of types was used
}

// With weights that are not bf16, the numeric class bf16 is about bf16 latents alone.
TEST(SparseBytes, TheClassBf16IsThatOfBf16Caches) {
  if (!has_numeric_class(NumericClass::kBF16)) GTEST_SKIP() << "no bf16 dot products here";
  const GoldenCase model = golden("glm_moe_dsa_shared");
  const auto prompts = prompts_of_lengths(model, {5, kTopk + 1, 100});
  for (const DType cache : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    EngineConfig engine = forward_config(prompts, kNumGreedy);
    engine.kv_cache_dtype = cache;
    engine.load_format = LoadFormat::kDummy;
    engine.dummy_format = WeightFormat::kQ8_0;
    const std::string f32_class = run_bytes(model.folder, engine, prompts, kNumGreedy, {});
    engine.numeric_class = NumericClass::kBF16;
    const std::string bf16_class = run_bytes(model.folder, engine, prompts, kNumGreedy, {});
    ASSERT_FALSE(bf16_class.empty());
    EXPECT_EQ(bf16_class == f32_class, cache != DType::kBF16) << name_of(cache);
  }
}

// Logits of one prompt, as bytes of the rows before `row` and of those from it on.
std::pair<std::string, std::string> logits_around(const std::string& model,
                                                  const std::vector<int32_t>& prompt, size_t row) {
  const std::vector<std::vector<int32_t>> prompts = {prompt};
  const std::string bytes = run_bytes(model, forward_config(prompts, 0), prompts, 0, {});
  const size_t at = bytes.size() / prompt.size() * std::min(row, prompt.size());
  return {bytes.substr(0, at), bytes.substr(at)};
}

void expect_dense_up_to_topk(const GoldenCase& sparse, const std::string& dense) {
  for (const size_t length : {size_t{1}, kTopk - 1, kTopk, kTopk + 1, 4 * kTopk}) {
    SCOPED_TRACE(fmt::format("{} tokens", length));
    const auto prompt = prompts_of_lengths(sparse, {length}).front();
    const auto [begin, rest] = logits_around(sparse.folder, prompt, kTopk);
    const auto [dense_begin, dense_rest] = logits_around(dense, prompt, kTopk);
    ASSERT_FALSE(begin.empty());
    EXPECT_TRUE(begin == dense_begin);
    EXPECT_EQ(rest == dense_rest, length <= kTopk);
  }
}

TEST(SparseBytes, UpToTopkEqualsARaisedTopk) {
  for (const char* name : {"deepseek_v32", "glm_moe_dsa_full", "glm_moe_dsa_shared"}) {
    SCOPED_TRACE(name);
    ChangedModel dense(name);
    dense.config["index_topk"] = 200;
    ASSERT_TRUE(dense.open());
    expect_dense_up_to_topk(golden(name), dense.path());
  }
}

// The same weights as a model without indexers.
TEST(SparseBytes, UpToTopkEqualsDenseAttention) {
  ChangedModel dense("deepseek_v32");
  std::erase_if(dense.tensors, [](const auto& entry) {
    return entry.first.find(".indexer.") != std::string::npos;
  });
  dense.config["architectures"] = {"DeepseekV3ForCausalLM"};
  dense.config["model_type"] = "deepseek_v3";
  for (const char* field : {"layer_types", "index_head_dim", "index_n_heads", "index_topk"}) {
    dense.config.erase(field);
  }
  ASSERT_TRUE(dense.open());
  expect_dense_up_to_topk(golden("deepseek_v32"), dense.path());
}

// Makes every token of every layer choose the expert `expert` among others, by its correction
// bias; without one, makes all tokens choose the first experts, whose scores then tie.
void route_all_to(ChangedModel& model, int expert) {
  for (auto& [name, tensor] : model.tensors) {
    if (name.ends_with("mlp.gate.e_score_correction_bias")) {
      ASSERT_EQ(tensor.dtype, DType::kF32);
      const float large = 100;
      std::memcpy(tensor.bytes.data() + static_cast<size_t>(expert) * sizeof(float), &large,
                  sizeof(float));
    } else if (name.ends_with("mlp.gate.weight") && expert == 0) {
      std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0});
    }
  }
}

TEST(SparseBytes, AnExpertThatGetsEveryToken) {
  const std::pair<const char*, int> cases[] = {
      {"qwen3_moe", 0}, {"glm4_moe", 5}, {"glm_moe_dsa_full", 7}};
  for (const auto& [name, expert] : cases) {
    SCOPED_TRACE(name);
    const GoldenCase model = golden(name);
    ChangedModel changed(name);
    route_all_to(changed, expert);
    ASSERT_TRUE(changed.open());
    const auto prompts = prompts_of_lengths(model, {1, 2, 3, 5, 16, 17, 33, 64, 100, 150});
    const EngineConfig engine = forward_config(prompts, kNumGreedy);
    const std::string alone = run_bytes(changed.path(), engine, prompts, kNumGreedy,
                                        {.threads = 1, .chunk = 1, .one_by_one = true});
    ASSERT_FALSE(alone.empty());
    for (const int threads : {1, 2, 5}) {
      EXPECT_TRUE(alone == run_bytes(changed.path(), engine, prompts, kNumGreedy,
                                     {.name = "a batch", .threads = threads}))
          << threads << " threads";
    }
    EXPECT_TRUE(alone == run_bytes(changed.path(), engine, prompts, kNumGreedy,
                                   {.name = "chunks of 7", .chunk = 7}));
    EXPECT_FALSE(alone == run_bytes(model.folder, engine, prompts, kNumGreedy, {.name = "golden"}));
  }
}

// Batches, chunks, threads and instruction sets against one token at a time on one thread.
void expect_same_bytes(const std::string& model, const EngineConfig& engine,
                       const std::vector<std::vector<int32_t>>& prompts) {
  const std::string alone =
      run_bytes(model, engine, prompts, kNumGreedy, {.threads = 1, .chunk = 1, .one_by_one = true});
  ASSERT_FALSE(alone.empty());
  float first = 0;
  std::memcpy(&first, alone.data(), sizeof first);
  EXPECT_TRUE(std::isfinite(first));
  const RunLayout layouts[] = {{.name = "a batch, 1 thread", .threads = 1},
                               {.name = "a batch"},
                               {.name = "a batch, 5 threads", .threads = 5},
                               {.name = "one by one, 3 threads", .threads = 3, .one_by_one = true},
                               {.name = "chunks of 7, blocks of 48", .chunk = 7, .block_size = 48}};
  for (const RunLayout& layout : layouts) {
    EXPECT_TRUE(alone == run_bytes(model, engine, prompts, kNumGreedy, layout)) << layout.name;
  }
  for (const Isa isa : available_isas(detect_cpu_features())) {
    setenv("MILLRACE_ISA", std::string(name_of(isa)).c_str(), 1);
    EXPECT_TRUE(alone == run_bytes(model, engine, prompts, kNumGreedy, {.name = "a batch"}))
        << name_of(isa);
    unsetenv("MILLRACE_ISA");
  }
}

// Gate, up and down of all experts, and the attention's projections, as a checkpoint's.
void quantise(ChangedModel& model, const ::millrace::testing::TestQuantization& quantization) {
  std::mt19937 random(3);
  for (const auto& [name, tensor] : std::map(model.tensors)) {
    constexpr std::string_view kWeight = ".weight";
    const bool fits = name.ends_with("_proj.weight") && !name.ends_with("weights_proj.weight") &&
                      tensor.shape[0] % 8 == 0 && tensor.shape[1] % 32 == 0;
    if (!fits) continue;
    ::millrace::testing::put_quantised(model, name.substr(0, name.size() - kWeight.size()),
                                       tensor.shape[0], tensor.shape[1], quantization, random);
  }
  model.config["quantization_config"] = ::millrace::testing::quantization_json(quantization);
}

TEST(SparseBytes, QuantisedCheckpoints) {
  const ::millrace::testing::TestQuantization quantizations[] = {
      {QuantizationMethod::kBlockFp8, true},
      {QuantizationMethod::kGptq, false},
      {QuantizationMethod::kCompressedTensors, true}};
  for (const auto& quantization : quantizations) {
    for (const bool one_expert : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", name_of(quantization.method),
                               one_expert ? ", an expert gets every token" : ""));
      ChangedModel model("glm_moe_dsa_shared");
      quantise(model, quantization);
      if (one_expert) route_all_to(model, 3);
      ASSERT_TRUE(model.open());
      const auto prompts = prompts_of_lengths(golden("glm_moe_dsa_shared"), {1, 2, 5, 17, 33, 100});
      EngineConfig engine = forward_config(prompts, kNumGreedy);
      engine.activation_quantization = ActivationQuantization::kInt8;
      expect_same_bytes(model.path(), engine, prompts);
    }
  }
}

TEST(SparseBytes, FormatsOfGguf) {
  for (const WeightFormat format : {WeightFormat::kQ8_0, WeightFormat::kQ4_0}) {
    for (const auto activations : {ActivationQuantization::kNone, ActivationQuantization::kInt8}) {
      SCOPED_TRACE(fmt::format("{}, {}", name_of(format), name_of(activations)));
      const GoldenCase model = golden("glm_moe_dsa_full");
      const auto prompts = prompts_of_lengths(model, {1, 2, 5, 17, 33, 100});
      EngineConfig engine = forward_config(prompts, kNumGreedy);
      engine.load_format = LoadFormat::kDummy;
      engine.dummy_format = format;
      engine.activation_quantization = activations;
      expect_same_bytes(model.folder, engine, prompts);
    }
  }
}

}  // namespace
}  // namespace millrace
