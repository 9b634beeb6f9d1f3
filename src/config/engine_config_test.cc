#include "config/engine_config.h"

#include <gtest/gtest.h>

#include <limits>

namespace millrace {
namespace {

ModelConfig small_model() {
  ModelConfig model;
  model.num_layers = 30;
  model.num_heads = 9;
  model.num_kv_heads = 3;
  model.head_dim = 64;
  model.max_position_embeddings = 8192;
  return model;
}

template <typename T>
std::string error_of(const Result<T>& result) {
  return result ? "no error" : result.error().message;
}

TEST(EngineConfig, OptionValuesParseOrNameTheChoices) {
  EXPECT_EQ(*parse_dtype_option("auto"), std::nullopt);
  EXPECT_EQ(*parse_dtype_option("bfloat16"), DType::kBF16);
  EXPECT_EQ(error_of(parse_dtype_option("int8")),
            "--dtype: found \"int8\", expected auto, float32, bfloat16 or float16");
  EXPECT_EQ(*parse_kv_cache_dtype_option("int8"), DType::kI8);
  EXPECT_EQ(*parse_kv_cache_dtype_option("f16"), DType::kF16);
  EXPECT_EQ(error_of(parse_kv_cache_dtype_option("fp4")),
            "--kv-cache-dtype: found \"fp4\", expected auto, f32, f16, bf16 or int8");
  EXPECT_EQ(*parse_activation_quantization("none"), ActivationQuantization::kNone);
  EXPECT_FALSE(parse_activation_quantization("int4"));
  EXPECT_EQ(*parse_numeric_class("bf16"), NumericClass::kBF16);
  EXPECT_FALSE(parse_numeric_class(""));
}

TEST(EngineConfig, MemorySizes) {
  struct Row {
    const char* text;
    int64_t bytes;  // 0: refused
  };
  const Row table[] = {{"1000000", 1000000},
                       {"2G", int64_t{2} << 30},
                       {"512M", 512 << 20},
                       {"1.5GiB", 3LL << 29},
                       {"4k", 4096},
                       {"7B", 7},
                       {"3KB", 3072},
                       {"", 0},
                       {"G", 0},
                       {"-1G", 0},
                       {"1X", 0},
                       {"1GX", 0},
                       {"nan", 0},
                       {"1e3", 0},
                       {"99999999T", 0}};
  for (const Row& row : table) {
    const auto size = parse_memory_size("--kv-cache-memory", row.text);
    EXPECT_EQ(size.value_or(0), row.bytes) << row.text;
  }
}

TEST(EngineConfig, MaxModelLen) {
  struct Row {
    std::optional<int64_t> asked;
    int64_t expected;  // 0: error
  };
  const Row table[] = {{std::nullopt, 8192}, {100, 100}, {8192, 8192}, {8193, 0}, {0, 0}, {-5, 0}};
  for (const Row& row : table) {
    EngineConfig engine;
    engine.max_model_len = row.asked;
    EXPECT_EQ(resolve_max_model_len(engine, small_model()).value_or(0), row.expected);
  }
  EngineConfig engine;
  engine.max_model_len = 10000;
  EXPECT_EQ(error_of(resolve_max_model_len(engine, small_model())),
            "--max-model-len: found 10000, expected 1 to 8192");
}

TEST(EngineConfig, TypesFollowThePurpose) {
  EngineConfig engine;
  EXPECT_EQ(resolve_dtype(engine), DType::kF32);
  EXPECT_EQ(resolve_kv_cache_dtype(engine), DType::kF16);
  EXPECT_TRUE(resolve_int8_activations(engine, WeightFormat::kQ4_1));
  EXPECT_FALSE(resolve_int8_activations(engine, WeightFormat::kF16));
  engine.purpose = Purpose::kForward;
  EXPECT_EQ(resolve_kv_cache_dtype(engine), DType::kF32);
  EXPECT_FALSE(resolve_int8_activations(engine, WeightFormat::kQ4_1));
  engine.kv_cache_dtype = DType::kI8;
  engine.activation_quantization = ActivationQuantization::kInt8;
  engine.dtype = DType::kBF16;
  EXPECT_EQ(resolve_dtype(engine), DType::kBF16);
  EXPECT_EQ(resolve_kv_cache_dtype(engine), DType::kI8);
  EXPECT_TRUE(resolve_int8_activations(engine, WeightFormat::kQ4_1));
  EXPECT_FALSE(resolve_int8_activations(engine, WeightFormat::kBF16));
}

TEST(EngineConfig, BatchedTokens) {
  EngineConfig engine;
  EXPECT_EQ(*resolve_max_num_batched_tokens(engine), 512);
  engine.max_num_seqs = 1000;
  EXPECT_EQ(*resolve_max_num_batched_tokens(engine), 1000);
  engine.max_num_batched_tokens = 7;
  EXPECT_EQ(error_of(resolve_max_num_batched_tokens(engine)),
            "--max-num-batched-tokens: found 7, expected at least --max-num-seqs 1000");
  engine.max_num_seqs = 1;
  EXPECT_EQ(*resolve_max_num_batched_tokens(engine), 7);
  engine.max_num_batched_tokens = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(resolve_max_num_batched_tokens(engine));
}

TEST(EngineConfig, KvBytes) {
  EXPECT_EQ(kv_bytes_per_token(small_model(), {.kv = DType::kF16}), 2 * 30 * 3 * 64 * 2);
  EXPECT_EQ(kv_bytes_per_token(small_model(), {.kv = DType::kF32}), 2 * 30 * 3 * 64 * 4);
  EXPECT_EQ(kv_bytes_per_token(small_model(), {.kv = DType::kI8}), 2 * 30 * 3 * (64 + 4));
}

TEST(EngineConfig, TheCacheStaysWithinItsMemory) {
  // 16 positions of 10 one-byte codes: 160 bytes, which take 192.
  ModelConfig model = small_model();
  model.num_kv_heads = 1;
  model.head_dim = 10;
  const int64_t block_bytes = 30 * 2 * (192 + 64);
  EXPECT_EQ(cache_layout(model, {.kv = DType::kI8}, 16).block_bytes(), block_bytes);
  EXPECT_EQ(kv_bytes_per_token(model, {.kv = DType::kI8}), block_bytes / 16);
  EngineConfig engine;
  engine.kv_cache_dtype = DType::kI8;
  for (const int64_t bytes : {20 * block_bytes - 1, 20 * block_bytes, 21 * block_bytes - 1}) {
    engine.kv_cache_memory = bytes;
    EXPECT_EQ(resolve_num_blocks(engine, model, 16, 0).value_or(0), bytes / block_bytes);
  }
}

TEST(EngineConfig, AbsurdPoolsAreNumbersStill) {
  ModelConfig model = small_model();
  model.num_layers = 4096;
  model.num_kv_heads = 65536;
  model.head_dim = 16;
  model.max_position_embeddings = int64_t{1} << 30;
  EngineConfig engine;
  engine.num_blocks = int64_t{1} << 30;
  const auto blocks = resolve_num_blocks(engine, model, 16, 0);
  ASSERT_TRUE(blocks) << error_of(blocks);
  EXPECT_LE(*blocks,
            (int64_t{1} << 60) / cache_layout(model, {.kv = DType::kF16}, 16).block_bytes());
  engine.num_blocks.reset();
  EXPECT_EQ(error_of(resolve_num_blocks(engine, model, int64_t{1} << 30, int64_t{1} << 40)),
            "the KV cache of one sequence of 1073741824 tokens takes 17592186044416 MiB, half of "
            "the memory that the weights leave is 524288 MiB: lower --max-model-len or set "
            "--kv-cache-memory");
}

TEST(EngineConfig, Blocks) {
  const ModelConfig model = small_model();
  const int64_t block_bytes = kv_bytes_per_token(model, {.kv = DType::kF16}) * 16;
  struct Row {
    std::optional<int64_t> num_blocks;
    std::optional<int64_t> memory;
    int64_t max_model_len;
    int64_t available;
    int64_t expected;  // 0: error
  };
  const Row table[] = {
      {std::nullopt, std::nullopt, 160, int64_t{1} << 40, 160},     // 16 sequences of 10 blocks
      {std::nullopt, std::nullopt, 161, int64_t{1} << 40, 176},     // rounded up
      {std::nullopt, std::nullopt, 160, 2 * 50 * block_bytes, 50},  // cut to half of memory
      {std::nullopt, std::nullopt, 160, 2 * 9 * block_bytes, 0},    // not one sequence
      {10, std::nullopt, 160, 0, 10},                               // as asked
      {9, std::nullopt, 160, 0, 0},                                 // not one sequence
      {std::nullopt, 12 * block_bytes + 5, 160, 0, 12},             // whole blocks
      {std::nullopt, 10 * block_bytes - 1, 160, 0, 0},
  };
  for (const Row& row : table) {
    EngineConfig engine;
    engine.num_blocks = row.num_blocks;
    engine.kv_cache_memory = row.memory;
    const auto blocks = resolve_num_blocks(engine, model, row.max_model_len, row.available);
    EXPECT_EQ(blocks.value_or(0), row.expected) << error_of(blocks);
  }
  EngineConfig engine;
  engine.num_blocks = 9;
  EXPECT_EQ(error_of(resolve_num_blocks(engine, model, 160, 0)),
            "--num-blocks: 9 blocks hold 144 tokens, one sequence of --max-model-len 160 needs 10 "
            "blocks");
}

TEST(EngineConfig, Threads) {
  EngineConfig engine;
  EXPECT_EQ(*resolve_threads(engine, 6), 6);
  engine.threads = 3;
  EXPECT_EQ(*resolve_threads(engine, 6), 3);
  engine.threads = -1;
  EXPECT_FALSE(resolve_threads(engine, 6));
  engine.threads = 5000;
  EXPECT_EQ(error_of(resolve_threads(engine, 6)), "--threads: found 5000, expected 0 to 1024");
}

TEST(EngineConfig, ValidateNamesTheOption) {
  EXPECT_TRUE(validate(EngineConfig{}));
  EngineConfig engine;
  engine.block_size = 20;
  EXPECT_EQ(error_of(validate(engine)),
            "--block-size: found 20, expected a multiple of 16 up to 1024");
  engine = {};
  engine.max_num_seqs = 0;
  EXPECT_EQ(error_of(validate(engine)), "--max-num-seqs: found 0, expected 1 to 4096");
  engine = {};
  engine.num_blocks = 5;
  engine.kv_cache_memory = 5;
  EXPECT_FALSE(validate(engine));
}

}  // namespace
}  // namespace millrace
