#include "runtime/load_model.h"

#include "base/cpu.h"
#include "base/env.h"
#include "io/checkpoint.h"
#include "io/checkpoint_config.h"
#include "io/model_path.h"
#include "kernels/isa.h"
#include "models/llama.h"
#include "weights/dense_weights.h"

namespace millrace {
namespace {

int64_t count_parameters(const Checkpoint& checkpoint) {
  int64_t count = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) count += tensor.num_elements();
  return count;
}

Result<Execution> resolve_execution(const EngineConfig& engine, int threads) {
  const CpuFeatures features = detect_cpu_features();
  Execution execution;
  MR_ASSIGN(execution.isa, resolve_isa(env::isa(), features));
  execution.dtype = resolve_dtype(engine);
  execution.int8_activations = resolve_int8_activations(engine, WeightFormat::kQ8_0);
  execution.bf16_class = engine.numeric_class == NumericClass::kBF16;
  execution.num_threads = threads;
  if (execution.bf16_class && (execution.isa != Isa::kAvx512Vnni || !features.avx512_bf16)) {
    return fail("--numeric-class bf16 needs a CPU with AVX-512 BF16 dot products and the kernels "
                "avx512vnni; here are {} kernels and {} BF16; use --numeric-class f32",
                name_of(execution.isa), features.avx512_bf16 ? "there is" : "there is no");
  }
  return execution;
}

}  // namespace

Result<LoadedModel> load_model(const std::string& model, const EngineConfig& engine,
                               Progress& progress) {
  LoadedModel loaded;
  MR_ASSIGN(loaded.path, resolve_model_path(model, model_search_dirs()));
  MR_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(loaded.path));
  MR_ASSIGN(loaded.config, read_model_config(checkpoint));
  const int cpus = available_cpus();
  MR_ASSIGN(loaded.threads, resolve_threads(engine, cpus));
  MR_ASSIGN(loaded.max_model_len, resolve_max_model_len(engine, loaded.config));
  MR_ASSIGN(loaded.max_num_batched_tokens, resolve_max_num_batched_tokens(engine));
  MR_ASSIGN(const Execution execution, resolve_execution(engine, loaded.threads));
  loaded.isa = name_of(execution.isa);
  loaded.num_parameters = count_parameters(checkpoint);

  auto team = std::make_unique<ThreadTeam>(loaded.threads, cpus);
  MR_ASSIGN(DenseWeights weights, load_dense_weights(checkpoint, loaded.config, *team, progress));
  loaded.weight_bytes = weights.total_bytes();

  RunnerOptions options = {.max_num_batched_tokens = loaded.max_num_batched_tokens,
                           .max_num_seqs = engine.max_num_seqs,
                           .block_size = engine.block_size,
                           .kv_cache_dtype = resolve_kv_cache_dtype(engine)};
  MR_ASSIGN(options.num_blocks, resolve_num_blocks(engine, loaded.config, loaded.max_model_len,
                                                   available_memory()));
  loaded.block_size = options.block_size;
  loaded.num_blocks = options.num_blocks;
  loaded.kv_bytes_per_token = kv_bytes_per_token(loaded.config, options.kv_cache_dtype);
  MR_ASSIGN(loaded.runner,
            ModelRunner::create(std::make_unique<LlamaModel>(loaded.config, execution,
                                                             std::move(weights)),
                                std::move(team), options));
  return loaded;
}

}  // namespace millrace
