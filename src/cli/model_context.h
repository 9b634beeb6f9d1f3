// What a model takes, before anything of it is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "config/engine_config.h"

namespace millrace {

struct ModelLimits {
  int64_t context = 0;  // tokens of the longest sequence
  int64_t vocab_size = 0;
};

// Of the model at `path` under `engine`. Reads headers and configuration only, so that what cannot
// work is told before the weights are packed.
Result<ModelLimits> limits_of(const std::string& path, const EngineConfig& engine);

}  // namespace millrace
