// Plans and carries out the packing of a checkpoint's tensors into one piece of memory.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/thread_team.h"
#include "io/checkpoint.h"
#include "tensor/packed_matrix.h"

namespace millrace {

// Two phases: matrix() and vector() check a tensor and reserve room for it; run() allocates, packs
// on all threads, and fills in the views that were asked for. The targets must stay where they are
// until run() has returned.
class Packer {
 public:
  explicit Packer(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // A weight matrix of n outputs and k inputs. Errors name the tensor: missing, of another shape,
  // of a type that is no weight format.
  Result<> matrix(const std::string& name, int64_t n, int64_t k, PackedMatrix* target);

  // A vector of fp32: norm weights, biases. F32, F16 and BF16 tensors are taken.
  Result<> vector(const std::string& name, int64_t size, const float** target);

  // True if the tensor was planned.
  bool takes(const CheckpointTensor& tensor) const { return taken_.contains(&tensor); }

  // Packs everything that was planned and returns the memory that the views point into. Pages of
  // the checkpoint are let go of as soon as they were packed.
  Result<Buffer> run(ThreadTeam& team, Progress& progress);

 private:
  struct MatrixJob {
    const CheckpointTensor* tensor;
    PackedMatrix* target;
    int64_t offset;
  };
  struct VectorJob {
    const CheckpointTensor* tensor;
    const float** target;
    int64_t offset;
  };

  Result<const CheckpointTensor*> find(const std::string& name,
                                       const std::vector<int64_t>& shape) const;
  // Room for the tensor's packed bytes; gives where it begins.
  int64_t reserve(const CheckpointTensor& tensor);
  void pack_matrices(ThreadTeam& team, Progress& progress) const;

  const Checkpoint& checkpoint_;
  std::vector<MatrixJob> matrices_;
  std::vector<VectorJob> vectors_;
  std::unordered_set<const CheckpointTensor*> taken_;
  int64_t reserved_ = 0;
};

}  // namespace millrace
