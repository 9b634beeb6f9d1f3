#include "cli/engine_flags.h"

#include <algorithm>

namespace millrace {

Result<EngineConfig> EngineFlags::parse(Purpose purpose) const {
  EngineConfig engine;
  engine.purpose = purpose;
  MR_ASSIGN(engine.dtype, parse_dtype_option(dtype));
  MR_ASSIGN(engine.kv_cache_dtype, parse_kv_cache_dtype_option(kv_cache_dtype));
  MR_ASSIGN(engine.indexer_dtype, parse_indexer_dtype_option(indexer_dtype));
  MR_ASSIGN(engine.load_format, parse_load_format(load_format));
  if (!dummy_format.empty()) {
    if (engine.load_format != LoadFormat::kDummy) {
      return fail("--dummy-format {} needs --load-format dummy", dummy_format);
    }
    const auto format = parse_weight_format(dummy_format);
    if (!format) {
      return fail("--dummy-format: found \"{}\", expected a weight format such as Q8_0, Q4_0, BF16",
                  dummy_format);
    }
    engine.dummy_format = *format;
  }
  MR_ASSIGN(engine.activation_quantization, parse_activation_quantization(activation_quantization));
  MR_ASSIGN(engine.numeric_class, parse_numeric_class(numeric_class));
  engine.max_model_len = max_model_len;
  engine.max_num_batched_tokens = max_num_batched_tokens;
  engine.max_num_seqs = num_seqs_for(engine.max_num_seqs);
  engine.block_size = block_size.value_or(engine.block_size);
  engine.num_blocks = num_blocks;
  if (!kv_cache_memory.empty()) {
    MR_ASSIGN(engine.kv_cache_memory, parse_memory_size("--kv-cache-memory", kv_cache_memory));
  }
  engine.threads = threads;
  MR_TRY(validate(engine));
  return engine;
}

int EngineFlags::num_seqs_for(int64_t wanted) const {
  if (max_num_seqs) return *max_num_seqs;
  const int64_t most = std::min<int64_t>(max_num_batched_tokens.value_or(kMaxNumSeqs), kMaxNumSeqs);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(most, 1)));
}

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->group("Engine");
  };
  add("--threads,-t", flags.threads, "Threads; 0: the CPUs of this process");
  add("--dtype", flags.dtype, "Type of activations: auto (float32), float32, bfloat16, float16");
  add("--kv-cache-dtype", flags.kv_cache_dtype,
      "Type of cached keys and values: auto (f16), f32, f16, bf16, int8");
  add("--indexer-dtype", flags.indexer_dtype,
      "Type of cached index keys of sparse attention: auto (int8), f32, bf16, int8");
  add("--load-format", flags.load_format,
      "auto, or dummy: random weights of the model's configuration, none are read");
  add("--dummy-format", flags.dummy_format,
      "Format of the matrices of dummy weights: Q8_0 (default), F32, F16, BF16, Q4_0, Q4_1, Q5_0, "
      "Q5_1, Q4_K, Q5_K, Q6_K");
  add("--activation-quantization", flags.activation_quantization,
      "Activations of 4- to 8-bit weights: auto (int8), none (exact), int8");
  add("--numeric-class", flags.numeric_class,
      "f32, or bf16: bf16 weights and bf16 latent caches by bf16 dot products (AVX-512 BF16)");
  add("--max-model-len", flags.max_model_len,
      "Tokens of the longest sequence; default: what the model was made for");
  add("--max-num-batched-tokens", flags.max_num_batched_tokens,
      "Tokens of one step: longer prompts are computed in chunks");
  add("--max-num-seqs", flags.max_num_seqs, "Sequences of one step");
  add("--block-size", flags.block_size, "Positions of a cache block: 16 (default), 32, ...");
  add("--num-blocks", flags.num_blocks, "Blocks of the cache");
  add("--kv-cache-memory", flags.kv_cache_memory, "Memory of the cache, for example 2G");
}

}  // namespace millrace
