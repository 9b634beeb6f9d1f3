// The `quantization_config` part of config.json.
#pragma once

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/model_config.h"

namespace millrace {

// Methods: fp8 with 128 x 128 blocks; 4-bit gptq without act-order; awq (gemm); compressed-tensors
// with 4-bit packed groups. All else is an error with the field's name.
Result<QuantizationConfig> parse_hf_quantization(const nlohmann::json& config);

}  // namespace millrace
