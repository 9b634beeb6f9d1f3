// From a model's files to something that runs: checkpoint, configuration, packed weights, runner.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
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
  nlohmann::json generation_config;  // of generation_config.json; null without that file
  std::string path;                  // as given
  int64_t max_model_len = 0;         // tokens of the longest sequence
  int64_t max_num_batched_tokens = 0;
  int64_t block_size = 0;  // tokens of a cache block
  int64_t num_blocks = 0;  // blocks of the pool
  int threads = 0;
  std::string isa;  // name of the kernels' instruction set
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;  // packed
  std::unique_ptr<ModelRunner> runner;
};

// `path`: as Checkpoint::open() takes it. Errors say which file or option is at fault.
Result<LoadedModel> load_model(const std::string& path, const EngineConfig& engine,
                               Progress& progress);

}  // namespace millrace
