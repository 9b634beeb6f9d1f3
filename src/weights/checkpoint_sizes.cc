#include "weights/checkpoint_sizes.h"

#include "tensor/packing.h"
#include "weights/tensor_names.h"

namespace millrace {

int64_t num_parameters(const CheckpointTensor& tensor) {
  return is_constant(tensor.name) ? 0 : tensor.num_elements();
}

int64_t num_parameters(const Checkpoint& checkpoint) {
  int64_t count = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) count += num_parameters(tensor);
  return count;
}

int64_t packed_bytes(const CheckpointTensor& tensor) {
  if (is_constant(tensor.name)) return 0;
  const auto format = tensor.weight_format();
  if (format && tensor.shape.size() == 2) {
    const auto layout = packed_layout(*format, tensor.shape[0], tensor.shape[1]);
    if (layout) return layout->total_bytes();
  }
  return tensor.num_elements() * int64_t{sizeof(float)};
}

int64_t packed_bytes(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) bytes += packed_bytes(tensor);
  return bytes;
}

}  // namespace millrace
