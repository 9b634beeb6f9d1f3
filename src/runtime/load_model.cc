#include "runtime/load_model.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/cpu.h"
#include "base/env.h"
#include "base/log.h"
#include "io/checkpoint.h"
#include "io/checkpoint_config.h"
#include "kernels/isa.h"
#include "models/deepseek.h"
#include "models/llama.h"
#include "weights/dummy_weights.h"
#include "weights/model_weights.h"
#include "weights/weights_plan.h"

namespace millrace {
namespace {

Result<Execution> resolve_execution(const EngineConfig& engine, int threads) {
  const CpuFeatures features = detect_cpu_features();
  Execution execution;
  MR_ASSIGN(execution.isa, resolve_isa(env::isa(), features));
  execution.dtype = resolve_dtype(engine);
  execution.int8_activations = resolve_int8_activations(engine, WeightFormat::kQ8_0);
  execution.bf16_class = engine.numeric_class == NumericClass::kBF16;
  execution.num_threads = threads;
  const std::optional<std::string> selection = env::test_selection();
  if (selection && *selection != "recent") {
    return fail("MILLRACE_TEST_SELECTION: found \"{}\", expected recent; unset it outside of tests",
                *selection);
  }
  execution.recent_keys = selection.has_value();
  if (execution.bf16_class && !has_bf16_class(execution.isa, features)) {
    return fail(
        "--numeric-class bf16 needs a CPU with AVX-512 BF16 dot products and the kernels "
        "avx512vnni; this CPU {} them, and the kernels are {}; use --numeric-class f32",
        features.avx512_bf16 ? "has" : "lacks", name_of(execution.isa));
  }
  return execution;
}

std::unique_ptr<Model> make_model(const ModelConfig& config, const Execution& execution,
                                  ModelWeights weights) {
  if (config.mla) return std::make_unique<DeepseekModel>(config, execution, std::move(weights));
  return std::make_unique<LlamaModel>(config, execution, std::move(weights));
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; }

// Memory is taken page by page as it is written, so that the system would not refuse what it lacks,
// but end the process later.
Result<> check_memory(const LoadedModel& loaded, int64_t weight_bytes, int64_t cache_bytes,
                      int64_t available) {
  if (weight_bytes > available) {
    return fail(
        "{}: the weights take {:.1f} GiB of memory, {:.1f} GiB are available: free memory, or take "
        "a smaller model or format",
        loaded.path, gib(weight_bytes), gib(available));
  }
  if (cache_bytes > available - weight_bytes) {
    return fail(
        "{}: the KV cache of {} blocks of {} tokens takes {:.1f} GiB of memory, the weights leave "
        "{:.1f} GiB: compute fewer or shorter sequences at once, or choose a smaller "
        "--kv-cache-dtype",
        loaded.path, loaded.num_blocks, loaded.block_size, gib(cache_bytes),
        gib(available - weight_bytes));
  }
  return {};
}

}  // namespace

Result<LoadedModel> load_model(const std::string& path, const EngineConfig& engine,
                               Progress& progress) {
  MR_TRY(validate(engine));
  LoadedModel loaded;
  loaded.path = path;
  const bool dummy = engine.load_format == LoadFormat::kDummy;
  MR_ASSIGN(const Checkpoint checkpoint,
            dummy ? Checkpoint::open_config(loaded.path) : Checkpoint::open(loaded.path));
  MR_ASSIGN(loaded.config, read_model_config(checkpoint));
  loaded.generation_config = checkpoint.generation_config_json();
  const int cpus = available_cpus();
  MR_ASSIGN(loaded.threads, resolve_threads(engine, cpus));
  MR_ASSIGN(loaded.max_model_len, resolve_max_model_len(engine, loaded.config));
  if (auto& indexer = loaded.config.indexer) {
    // More keys than positions select all of them; buffers have the size of the selection.
    indexer->topk = static_cast<int>(std::min<int64_t>(indexer->topk, loaded.max_model_len));
  }
  MR_ASSIGN(loaded.max_num_batched_tokens, resolve_max_num_batched_tokens(engine));
  MR_ASSIGN(const Execution execution, resolve_execution(engine, loaded.threads));
  if (execution.recent_keys) {
    log::warning(
        "MILLRACE_TEST_SELECTION: sparse attention takes the most recent keys, not the best");
  }
  loaded.isa = name_of(execution.isa);
  loaded.num_parameters = num_parameters(loaded.config);

  // Before the weights are packed, which takes a while: what they will take is known.
  RunnerOptions options = {.max_num_batched_tokens = loaded.max_num_batched_tokens,
                           .max_num_seqs = engine.max_num_seqs,
                           .block_size = engine.block_size,
                           .cache_types = resolve_cache_types(engine)};
  MR_ASSIGN(const int64_t weight_bytes, dummy
                                            ? dummy_weight_bytes(loaded.config, engine.dummy_format)
                                            : packed_bytes(checkpoint, loaded.config));
  const int64_t available = available_memory();
  MR_TRY(check_memory(loaded, weight_bytes, 0, available));
  MR_ASSIGN(options.num_blocks, resolve_num_blocks(engine, loaded.config, loaded.max_model_len,
                                                   available - weight_bytes));
  loaded.block_size = options.block_size;
  loaded.num_blocks = options.num_blocks;
  const int64_t block_bytes =
      cache_layout(loaded.config, options.cache_types, engine.block_size).block_bytes();
  MR_TRY(check_memory(loaded, weight_bytes, options.num_blocks * block_bytes, available));

  MR_ASSIGN(auto team, ThreadTeam::create(loaded.threads, cpus));
  MR_ASSIGN(ModelWeights weights,
            dummy ? make_dummy_weights(loaded.config, engine.dummy_format, *team, progress)
                  : load_model_weights(checkpoint, loaded.config, *team, progress));
  loaded.weight_bytes = weights.total_bytes();

  MR_ASSIGN(loaded.runner,
            ModelRunner::create(make_model(loaded.config, execution, std::move(weights)),
                                std::move(team), options));
  log::debug(
      "{}: {} kernels, {} threads, {} MiB of weights, context {} tokens, {} blocks of {} tokens, "
      "steps of {} tokens",
      loaded.path, loaded.isa, loaded.threads, loaded.weight_bytes >> 20, loaded.max_model_len,
      loaded.num_blocks, loaded.block_size, loaded.max_num_batched_tokens);
  return loaded;
}

}  // namespace millrace
