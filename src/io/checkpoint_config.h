// The model configuration of a checkpoint, from config.json or from GGUF metadata.
#pragma once

#include "base/error.h"
#include "config/model_config.h"
#include "io/checkpoint.h"

namespace millrace {

// Parses and checks the configuration; errors name the file and the field. End tokens are the union
// of all that the checkpoint declares (config.json, generation_config.json, GGUF's eos, eot, eom).
Result<ModelConfig> read_model_config(const Checkpoint& checkpoint);

}  // namespace millrace
