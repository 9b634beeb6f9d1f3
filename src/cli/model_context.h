// The context length of a model, before anything of it is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "config/engine_config.h"

namespace millrace {

// Tokens of the longest sequence that the model at `path` takes under `engine`. Reads headers and
// configuration only, so that what cannot work is told before the weights are packed.
Result<int64_t> context_of(const std::string& path, const EngineConfig& engine);

}  // namespace millrace
