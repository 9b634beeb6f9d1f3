// The sampling that a model's authors recommend: generation_config.json.
#pragma once

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/sampling_params.h"

namespace millrace {

// The defaults of a model's requests. With do_sample true: its temperature (else 1), top_k, top_p,
// min_p. Otherwise, or without a file (null): greedy. repetition_penalty holds in both. Fields that
// are absent or null keep the neutral value. Errors name the field: of the wrong type, out of
// range.
Result<SamplingParams> default_sampling_params(const nlohmann::json& generation_config);

}  // namespace millrace
