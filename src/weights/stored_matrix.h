// How a checkpoint stores a matrix: one tensor in a weight format, or codes with the tensors that
// belong to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "config/model_config.h"
#include "io/checkpoint.h"
#include "tensor/block_fp8.h"
#include "tensor/int4_groups.h"

namespace millrace {

// The tensors of a matrix, found and checked. Views into the checkpoint.
struct StoredMatrix {
  const CheckpointTensor* tensor = nullptr;  // weights or codes
  const CheckpointTensor* scales = nullptr;
  const CheckpointTensor* zeros = nullptr;        // also where all of them must be 8
  const CheckpointTensor* group_index = nullptr;  // the group of each input
  const CheckpointTensor* shape = nullptr;        // the matrix' shape
  // Empty: the tensor's own format.
  std::variant<std::monostate, Fp8Tensor, Int4Tensor> codes;

  // All tensors that are there.
  std::vector<const CheckpointTensor*> tensors() const;
};

// A tensor of a weight format. Errors name it: missing, of another shape or type.
Result<const CheckpointTensor*> find_weight(const Checkpoint& checkpoint, const std::string& name,
                                            const std::vector<int64_t>& shape);

// Finds the matrix of n outputs and k inputs in a module: <module>.weight, or what the quantisation
// puts in its place. Reads names, types and shapes. Errors name the tensor.
Result<StoredMatrix> find_stored_matrix(const Checkpoint& checkpoint,
                                        const std::optional<QuantizationConfig>& quantization,
                                        const std::string& module, int64_t n, int64_t k);

// Reads the tensors that must hold what is expected: zero points that are all 8, groups in the
// order of the inputs, the shape. Errors name the tensor.
Result<> check_contents(const StoredMatrix& matrix);

// Expands rows [begin, end) of the matrix, all of its inputs, to fp32.
void expand_rows(const StoredMatrix& matrix, int64_t begin, int64_t end, float* dst);

}  // namespace millrace
