#include "cli/model_context.h"

#include "io/checkpoint.h"
#include "io/checkpoint_config.h"

namespace millrace {

Result<ModelLimits> limits_of(const std::string& path, const EngineConfig& engine) {
  MR_ASSIGN(const Checkpoint checkpoint, Checkpoint::open_config(path));
  MR_ASSIGN(const ModelConfig model, read_model_config(checkpoint));
  MR_ASSIGN(const int64_t context, resolve_max_model_len(engine, model));
  return ModelLimits{.context = context, .vocab_size = model.vocab_size};
}

}  // namespace millrace
