// How much a checkpoint holds, tensor by tensor. (What the weights of a model take in memory:
// model_weights.h; how many they are: weights_plan.h.)
#pragma once

#include <cstdint>

#include "io/checkpoint.h"

namespace millrace {

// Parameters of the model in a tensor: its elements or codes; 0 for constants (is_constant()) and
// for scales, zero points and the like.
int64_t num_parameters(const CheckpointTensor& tensor);
// In all tensors.
int64_t num_parameters(const Checkpoint& checkpoint);

// Bytes that a tensor takes once it is packed as it is, without the gap to the next one: matrices
// in panels, vectors in fp32; 0 for constants; tensors of codes about as many as in the file.
int64_t packed_bytes(const CheckpointTensor& tensor);

}  // namespace millrace
