// exp((x - max) / temperature) of a row of logits: the hot loop of sampling, per instruction set.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace millrace {

// weights[i] = exp_f32((logits[i] - max) * inverse_temperature), 0 for NaN; `max` is the largest of
// the logits and finite. Both have n elements and may not overlap.
using SoftmaxWeightsFunction = void (*)(const float* logits, int64_t n, float max,
                                        float inverse_temperature, float* weights);

// The function for `isa`. All give the same bits.
SoftmaxWeightsFunction softmax_weights(Isa isa);

}  // namespace millrace
