#include "config/engine_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace millrace {
namespace {

constexpr int64_t kDefaultBatchedTokens = 512;
constexpr int64_t kMaxBatchedTokens = int64_t{1} << 20;
constexpr int64_t kMaxBlocks = int64_t{1} << 30;

std::unexpected<Error> bad_option(std::string_view option, std::string_view value,
                                  std::string_view choices) {
  return fail("{}: found \"{}\", expected {}", option, value, choices);
}

Result<> check_range(std::string_view option, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return fail("{}: found {}, expected {} to {}", option, value, least, most);
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Bytes of a memory unit ("", "k", "KiB", "M", ...), or 0.
double unit_bytes(std::string_view unit) {
  constexpr std::array<char, 5> kUnits = {'B', 'K', 'M', 'G', 'T'};
  if (unit.empty()) return 1;
  const char letter = static_cast<char>(unit[0] & ~0x20);
  const auto at = std::ranges::find(kUnits, letter);
  const std::string_view rest = unit.substr(1);
  if (at == kUnits.end()) return 0;
  const bool valid_rest =
      rest.empty() ||
      (letter != 'B' && (rest == "B" || rest == "iB" || rest == "ib" || rest == "b"));
  return valid_rest ? std::ldexp(1.0, 10 * static_cast<int>(at - kUnits.begin())) : 0;
}

}  // namespace

std::string_view name_of(ActivationQuantization value) {
  switch (value) {
    case ActivationQuantization::kAuto:
      return "auto";
    case ActivationQuantization::kNone:
      return "none";
    case ActivationQuantization::kInt8:
      return "int8";
  }
  MR_CHECK(false, "bad activation quantisation");
}

std::string_view name_of(NumericClass value) {
  return value == NumericClass::kBF16 ? "bf16" : "f32";
}

Result<std::optional<DType>> parse_dtype_option(std::string_view value) {
  if (value == "auto") return std::nullopt;
  const auto dtype = parse_dtype(value);
  if (dtype && (*dtype == DType::kF32 || *dtype == DType::kF16 || *dtype == DType::kBF16)) {
    return dtype;
  }
  return bad_option("--dtype", value, "auto, float32, bfloat16 or float16");
}

Result<std::optional<DType>> parse_kv_cache_dtype_option(std::string_view value) {
  if (value == "auto") return std::nullopt;
  const auto dtype = parse_dtype(value);
  if (dtype && (*dtype == DType::kF32 || *dtype == DType::kF16 || *dtype == DType::kBF16 ||
                *dtype == DType::kI8)) {
    return dtype;
  }
  return bad_option("--kv-cache-dtype", value, "auto, f32, f16, bf16 or int8");
}

Result<std::optional<DType>> parse_indexer_dtype_option(std::string_view value) {
  if (value == "auto") return std::nullopt;
  const auto dtype = parse_dtype(value);
  if (dtype && (*dtype == DType::kF32 || *dtype == DType::kBF16 || *dtype == DType::kI8)) {
    return dtype;
  }
  return bad_option("--indexer-dtype", value, "auto, f32, bf16 or int8");
}

Result<LoadFormat> parse_load_format(std::string_view value) {
  if (value == "auto") return LoadFormat::kAuto;
  if (value == "dummy") return LoadFormat::kDummy;
  return bad_option("--load-format", value, "auto or dummy");
}

Result<ActivationQuantization> parse_activation_quantization(std::string_view value) {
  for (const auto choice : {ActivationQuantization::kAuto, ActivationQuantization::kNone,
                            ActivationQuantization::kInt8}) {
    if (value == name_of(choice)) return choice;
  }
  return bad_option("--activation-quantization", value, "auto, none or int8");
}

Result<NumericClass> parse_numeric_class(std::string_view value) {
  for (const auto choice : {NumericClass::kF32, NumericClass::kBF16}) {
    if (value == name_of(choice)) return choice;
  }
  return bad_option("--numeric-class", value, "f32 or bf16");
}

Result<int64_t> parse_memory_size(std::string_view option, std::string_view value) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), number, std::chars_format::fixed);
  const std::string_view unit = value.substr(static_cast<size_t>(end - value.data()));
  const double bytes = error == std::errc() ? number * unit_bytes(unit) : 0;
  if (!(bytes >= 1 && bytes < 0x1p60)) {
    return bad_option(option, value, "a size such as 2G, 512M or 1000000");
  }
  return static_cast<int64_t>(bytes);
}

Result<int64_t> resolve_max_model_len(const EngineConfig& engine, const ModelConfig& model) {
  if (!engine.max_model_len) return model.max_position_embeddings;
  MR_TRY(check_range("--max-model-len", *engine.max_model_len, 1, model.max_position_embeddings));
  return *engine.max_model_len;
}

DType resolve_dtype(const EngineConfig& engine) { return engine.dtype.value_or(DType::kF32); }

DType resolve_kv_cache_dtype(const EngineConfig& engine) {
  return engine.kv_cache_dtype.value_or(engine.purpose == Purpose::kForward ? DType::kF32
                                                                            : DType::kF16);
}

DType resolve_indexer_dtype(const EngineConfig& engine) {
  return engine.indexer_dtype.value_or(engine.purpose == Purpose::kForward ? DType::kF32
                                                                           : DType::kI8);
}

CacheTypes resolve_cache_types(const EngineConfig& engine) {
  return {.kv = resolve_kv_cache_dtype(engine), .indexer = resolve_indexer_dtype(engine)};
}

bool resolve_int8_activations(const EngineConfig& engine, WeightFormat format) {
  if (!is_quantized(format)) return false;
  switch (engine.activation_quantization) {
    case ActivationQuantization::kNone:
      return false;
    case ActivationQuantization::kInt8:
      return true;
    case ActivationQuantization::kAuto:
      return engine.purpose != Purpose::kForward;
  }
  MR_CHECK(false, "bad activation quantisation");
}

Result<int64_t> resolve_max_num_batched_tokens(const EngineConfig& engine) {
  const int64_t tokens = engine.max_num_batched_tokens.value_or(
      std::max<int64_t>(kDefaultBatchedTokens, engine.max_num_seqs));
  if (tokens < engine.max_num_seqs) {
    return fail("--max-num-batched-tokens: found {}, expected at least --max-num-seqs {}", tokens,
                engine.max_num_seqs);
  }
  MR_TRY(check_range("--max-num-batched-tokens", tokens, 1, kMaxBatchedTokens));
  return tokens;
}

CacheLayout cache_layout(const ModelConfig& model, const CacheTypes& types, int block_size) {
  if (!model.mla) {
    return {.gqa = {.dtype = types.kv,
                    .block_size = block_size,
                    .num_kv_heads = model.num_kv_heads,
                    .head_dim = model.head_dim,
                    .num_layers = model.num_layers},
            .mla = std::nullopt};
  }
  MlaLayout sizes;
  sizes.dtype = types.kv;
  sizes.index_dtype = types.indexer;
  sizes.block_size = block_size;
  sizes.latent = model.mla->kv_lora_rank;
  sizes.rope = model.mla->qk_rope_head_dim;
  std::vector<uint8_t> has_indexer(static_cast<size_t>(model.num_layers), 0);
  if (model.indexer) {
    sizes.index_dim = model.indexer->head_dim;
    has_indexer = model.indexer->is_full;
  }
  return {.gqa = {}, .mla = MlaLayout::make(sizes, has_indexer)};
}

int64_t kv_bytes_per_token(const ModelConfig& model, const CacheTypes& types) {
  // Whole: every part of a block is rounded up to 64 bytes.
  const int block_size = EngineConfig{}.block_size;
  return cache_layout(model, types, block_size).block_bytes() / block_size;
}

Result<int64_t> resolve_num_blocks(const EngineConfig& engine, const ModelConfig& model,
                                   int64_t max_model_len, int64_t available_memory) {
  const int64_t block_bytes =
      cache_layout(model, resolve_cache_types(engine), engine.block_size).block_bytes();
  MR_CHECK(block_bytes > 0, "a model that was not checked");
  // So that the pool's bytes stay a number; allocating as much fails.
  const int64_t most_blocks = std::min(kMaxBlocks, (int64_t{1} << 60) / block_bytes);
  const int64_t one_sequence = divide_up(max_model_len, engine.block_size);
  if (engine.num_blocks || engine.kv_cache_memory) {
    const int64_t blocks =
        engine.num_blocks.value_or(engine.kv_cache_memory.value_or(0) / block_bytes);
    if (blocks < one_sequence) {
      return fail(
          "{}: {} blocks hold {} tokens, one sequence of --max-model-len {} needs {} blocks",
          engine.num_blocks ? "--num-blocks" : "--kv-cache-memory", blocks,
          blocks * engine.block_size, max_model_len, one_sequence);
    }
    return std::min(blocks, most_blocks);
  }
  const int64_t affordable = available_memory / 2 / block_bytes;
  if (affordable < one_sequence) {
    return fail(
        "the KV cache of one sequence of {} tokens takes {:.0f} MiB, half of the memory that the "
        "weights leave is {} MiB: lower --max-model-len or set --kv-cache-memory",
        max_model_len,
        static_cast<double>(one_sequence) * static_cast<double>(block_bytes) / 0x1p20,
        available_memory / 2 >> 20);
  }
  return std::min({one_sequence * engine.max_num_seqs, affordable, most_blocks});
}

Result<int> resolve_threads(const EngineConfig& engine, int available_cpus) {
  MR_TRY(check_range("--threads", engine.threads, 0, kMaxThreads));
  return engine.threads > 0 ? engine.threads : std::min(available_cpus, kMaxThreads);
}

Result<> validate(const EngineConfig& engine) {
  MR_TRY(check_range("--max-num-seqs", engine.max_num_seqs, 1, kMaxNumSeqs));
  // Attention tiles hold 16 positions, and a tile must not straddle blocks.
  if (engine.block_size < 16 || engine.block_size > 1024 || engine.block_size % 16 != 0) {
    return fail("--block-size: found {}, expected a multiple of 16 up to 1024", engine.block_size);
  }
  if (engine.num_blocks && engine.kv_cache_memory) {
    return fail("--num-blocks and --kv-cache-memory: both are set, expected one");
  }
  if (engine.num_blocks) {
    MR_TRY(check_range("--num-blocks", *engine.num_blocks, 1, kMaxBlocks));
  }
  MR_TRY(check_range("--threads", engine.threads, 0, kMaxThreads));
  return {};
}

}  // namespace millrace
