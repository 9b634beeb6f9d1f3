// Weights that are made up: for measurements at the shapes of models that are not at hand.
#pragma once

#include "base/error.h"
#include "base/progress.h"
#include "base/thread_team.h"
#include "config/model_config.h"
#include "tensor/weight_format.h"
#include "weights/model_weights.h"

namespace millrace {

// Random weights of a configuration, made in packed form. Matrices are of `format`, as far as their
// inputs are whole blocks of it (else of Q8_0, or F16), with values of mean 0 and a standard
// deviation of about k^-0.5; routers are fp32; norms are 1 and biases 0. The same on every machine
// and for any number of threads. Error: no memory.
Result<ModelWeights> make_dummy_weights(const ModelConfig& config, WeightFormat format,
                                        ThreadTeam& team, Progress& progress);

// Bytes that they will take: total_bytes() of what make_dummy_weights gives.
Result<int64_t> dummy_weight_bytes(const ModelConfig& config, WeightFormat format);

}  // namespace millrace
