// What weights a decoder has, for whoever provides them: from a checkpoint (packer.h) or made up
// (dummy_weights.h).
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/model_config.h"
#include "tensor/packed_matrix.h"
#include "weights/model_weights.h"
#include "weights/tensor_names.h"

namespace millrace {

struct MatrixShape {
  int64_t n = 0;  // outputs
  int64_t k = 0;  // inputs
};

// The matrix of latent attention that is used in two halves, head by head.
struct KvUpShape {
  int64_t heads = 0;
  int64_t nope = 0;
  int64_t v = 0;
  int64_t latent = 0;
};

// Takes the weights of a plan one by one. Targets are written later, so they must stay where they
// are. Modules are names without their last part (tensor_names.h).
class WeightSink {
 public:
  virtual ~WeightSink() = default;

  virtual NameStyle style() const = 0;
  virtual bool has(const std::string& tensor_name) const = 0;

  // A matrix in the format of the checkpoint.
  virtual Result<> matrix(const std::string& module, MatrixShape shape, PackedMatrix* target) = 0;
  // A matrix in fp32, whatever its format.
  virtual Result<> matrix_f32(const std::string& module, MatrixShape shape,
                              PackedMatrix* target) = 0;
  // Several matrices in one tensor, [count, n, k].
  virtual Result<> matrices(const std::string& module, MatrixShape shape,
                            std::vector<PackedMatrix>& targets) = 0;
  // kv_b_proj, [heads*(nope + v), latent]: each head's first rows transposed, and its last rows.
  virtual Result<> kv_up(const std::string& module, KvUpShape shape,
                         std::vector<PackedMatrix>& k_up, std::vector<PackedMatrix>& v_up) = 0;
  // A vector in fp32.
  virtual Result<> vector(const std::string& name, int64_t size, const float** target) = 0;
};

// Gives the sink every weight that `config` asks for, in the order of the forward. `weights` must
// stay where it is until the sink has provided them; its head stays empty if it is tied.
Result<> plan_weights(const ModelConfig& config, WeightSink& sink, ModelWeights& weights);

// Parameters of a model: the elements of all weights that it loads.
int64_t num_parameters(const ModelConfig& config);

}  // namespace millrace
