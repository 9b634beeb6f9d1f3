// How a model is run: what the command line asks for, and the pure functions that turn `auto` into
// decisions. One function per decision; no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "config/model_config.h"
#include "tensor/cache_layout.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace millrace {

enum class ActivationQuantization : uint8_t { kAuto, kNone, kInt8 };
enum class NumericClass : uint8_t { kF32, kBF16 };
enum class LoadFormat : uint8_t { kAuto, kDummy };     // kDummy: random weights, none are read
enum class Purpose : uint8_t { kGenerate, kForward };  // `forward` computes exactly unless asked

std::string_view name_of(ActivationQuantization value);
std::string_view name_of(NumericClass value);

// Most sequences of one step.
inline constexpr int kMaxNumSeqs = 4096;

// What was asked for. Absent means auto.
struct EngineConfig {
  std::optional<int64_t> max_model_len;
  int max_num_seqs = 16;
  std::optional<int64_t> max_num_batched_tokens;
  int block_size = 16;  // KV positions per block
  // At most one of these two: bytes of KV cache, or number of blocks.
  std::optional<int64_t> kv_cache_memory;
  std::optional<int64_t> num_blocks;
  std::optional<DType> dtype;
  std::optional<DType> kv_cache_dtype;
  std::optional<DType> indexer_dtype;
  ActivationQuantization activation_quantization = ActivationQuantization::kAuto;
  NumericClass numeric_class = NumericClass::kF32;
  LoadFormat load_format = LoadFormat::kAuto;
  WeightFormat dummy_format = WeightFormat::kQ8_0;  // of the matrices of kDummy
  int threads = 0;                                  // 0: the CPUs that this process may use
  Purpose purpose = Purpose::kGenerate;
};

// Option values, as the command line spells them. Errors name the option, the value and the
// choices.
Result<std::optional<DType>> parse_dtype_option(std::string_view value);  // --dtype
Result<std::optional<DType>> parse_kv_cache_dtype_option(
    std::string_view value);  // --kv-cache-dtype
Result<std::optional<DType>> parse_indexer_dtype_option(std::string_view value);  // --indexer-dtype
Result<LoadFormat> parse_load_format(std::string_view value);                     // --load-format
Result<ActivationQuantization> parse_activation_quantization(std::string_view value);
Result<NumericClass> parse_numeric_class(std::string_view value);
inline constexpr int kMaxThreads = 1024;

// "2G", "512M", "1.5GiB", "1000000": bytes. Units are powers of 1024.
Result<int64_t> parse_memory_size(std::string_view option, std::string_view value);

// The context length: what was asked, else the model's. Asking for more than the model was trained
// for is an error that says both.
Result<int64_t> resolve_max_model_len(const EngineConfig& engine, const ModelConfig& model);

// Type of activations between steps: auto is float32.
DType resolve_dtype(const EngineConfig& engine);

// Type of cached keys and values (f32, f16, bf16, int8): auto is f16, and f32 in `forward`.
DType resolve_kv_cache_dtype(const EngineConfig& engine);

// Type of cached index keys of sparse attention (int8, f32, bf16): auto is int8, and f32 in
// `forward`.
DType resolve_indexer_dtype(const EngineConfig& engine);

// True if a weight of this format is multiplied with int8 activations: auto means so for quantised
// formats, except in `forward`.
bool resolve_int8_activations(const EngineConfig& engine, WeightFormat format);

// Tokens of one step: auto is 512, at least max_num_seqs; a smaller value is an error.
Result<int64_t> resolve_max_num_batched_tokens(const EngineConfig& engine);

// Types of what is cached.
struct CacheTypes {
  DType kv = DType::kF16;
  DType indexer = DType::kI8;
};
CacheTypes resolve_cache_types(const EngineConfig& engine);

// How the cache of a model lies in memory; its block_bytes() is the price of a block.
CacheLayout cache_layout(const ModelConfig& model, const CacheTypes& types, int block_size);

// Bytes that one position takes over all layers, scales of int8 and index keys included, in a cache
// of the default block size.
int64_t kv_bytes_per_token(const ModelConfig& model, const CacheTypes& types);

// Blocks of the KV pool. From --num-blocks; else from --kv-cache-memory; else enough for
// max_num_seqs sequences of max_model_len, but at most half of `available_memory` (bytes that the
// weights leave), and at least one sequence. Error: the pool cannot hold one sequence of
// max_model_len.
Result<int64_t> resolve_num_blocks(const EngineConfig& engine, const ModelConfig& model,
                                   int64_t max_model_len, int64_t available_memory);

// Threads of a rank: as asked, else `available_cpus`. Error: below 0 or above 1024.
Result<int> resolve_threads(const EngineConfig& engine, int available_cpus);

// Checks ranges of everything else. Errors name the option.
Result<> validate(const EngineConfig& engine);

}  // namespace millrace
