// How much a checkpoint holds: parameters, and bytes once they are packed.
#pragma once

#include <cstdint>

#include "io/checkpoint.h"

namespace millrace {

// Parameters of the model in a tensor: its elements; 0 for constants (is_constant()).
int64_t num_parameters(const CheckpointTensor& tensor);
// In all tensors.
int64_t num_parameters(const Checkpoint& checkpoint);

// Bytes that a tensor takes once it is packed, without the gap to the next one: matrices in panels,
// vectors in fp32; 0 for constants.
int64_t packed_bytes(const CheckpointTensor& tensor);
// Of all tensors.
int64_t packed_bytes(const Checkpoint& checkpoint);

}  // namespace millrace
