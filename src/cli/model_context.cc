#include "cli/model_context.h"

#include "io/checkpoint.h"
#include "io/checkpoint_config.h"

namespace millrace {

Result<int64_t> context_of(const std::string& path, const EngineConfig& engine) {
  MR_ASSIGN(const Checkpoint checkpoint, Checkpoint::open_config(path));
  MR_ASSIGN(const ModelConfig model, read_model_config(checkpoint));
  return resolve_max_model_len(engine, model);
}

}  // namespace millrace
