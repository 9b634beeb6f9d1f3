// Plans and carries out the packing of a checkpoint's tensors into one piece of memory.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/thread_team.h"
#include "config/model_config.h"
#include "io/checkpoint.h"
#include "tensor/packed_matrix.h"
#include "weights/matrix_source.h"
#include "weights/weights_plan.h"

namespace millrace {

// Two phases: the functions of WeightSink check a tensor and reserve room for it; run() allocates,
// packs on all threads, and fills in the views that were asked for. Errors name the tensor:
// missing, of another shape, of a type that is no weight format. Vectors may be F32, F16 or BF16.
class Packer : public WeightSink {
 public:
  Packer(const Checkpoint& checkpoint, const std::optional<QuantizationConfig>& quantization)
      : checkpoint_(checkpoint), quantization_(quantization) {}

  NameStyle style() const override;
  bool has(const std::string& tensor_name) const override;
  Result<> matrix(const std::string& module, MatrixShape shape, PackedMatrix* target) override;
  Result<> matrix_f32(const std::string& module, MatrixShape shape, PackedMatrix* target) override;
  Result<> matrices(const std::string& module, MatrixShape shape,
                    std::vector<PackedMatrix>& targets) override;
  Result<> kv_up(const std::string& module, KvUpShape shape, std::vector<PackedMatrix>& k_up,
                 std::vector<PackedMatrix>& v_up) override;
  Result<> vector(const std::string& name, int64_t size, const float** target) override;

  // True if the tensor was planned.
  bool takes(const CheckpointTensor& tensor) const { return taken_.contains(&tensor); }

  // Bytes of everything that was planned.
  int64_t reserved_bytes() const { return reserved_; }

  // Packs everything that was planned and returns the memory that the views point into. Pages of
  // the checkpoint are let go of as soon as they were packed. Errors: no memory; tensors that hold
  // what cannot be (check_contents, stored_matrix.h).
  Result<Buffer> run(ThreadTeam& team, Progress& progress);

 private:
  struct MatrixJob {
    MatrixSource source;
    PackedMatrix* target;
    int64_t offset;
  };
  struct VectorJob {
    const CheckpointTensor* tensor;
    const float** target;
    int64_t offset;
  };

  Result<StoredMatrix> find(const std::string& module, MatrixShape shape);
  void take(const StoredMatrix& stored);
  // Plans a part of a matrix that was found.
  Result<> add(const MatrixSource& source, MatrixShape shape, PackedMatrix* target);
  // Room for bytes of packed weights; gives where they begin.
  int64_t reserve(int64_t bytes);
  Result<> pack_matrices(ThreadTeam& team, Progress& progress) const;

  const Checkpoint& checkpoint_;
  const std::optional<QuantizationConfig>& quantization_;
  std::vector<MatrixJob> matrices_;
  std::vector<VectorJob> vectors_;
  std::unordered_set<const CheckpointTensor*> taken_;
  int64_t reserved_ = 0;
};

}  // namespace millrace
