// From a model's name to something that runs: checkpoint, configuration, packed weights, runner.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "base/progress.h"
#include "config/engine_config.h"
#include "config/model_config.h"
#include "runtime/model_runner.h"

namespace millrace {

// The decisions of a load, resolved: what runs, and how much memory it takes.
struct LoadedModel {
  ModelConfig config;
  std::string path;               // where the model was found
  int64_t max_model_len = 0;      // tokens of the longest sequence
  int64_t max_num_batched_tokens = 0;
  int64_t block_size = 0;         // tokens of a cache block
  int64_t num_blocks = 0;         // blocks of the pool
  int threads = 0;
  std::string isa;                // name of the kernels' instruction set
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;       // packed
  int64_t kv_bytes_per_token = 0;
  std::unique_ptr<ModelRunner> runner;
};

// `model` is a path or a name (io/model_path.h). Errors say which file or option is at fault.
Result<LoadedModel> load_model(const std::string& model, const EngineConfig& engine,
                               Progress& progress);

}  // namespace millrace
