// The layers that decoders are made of, as recorders of steps: norm, linear, gated MLP, RoPE and
// cache write. A layer knows shapes and weights; it does not know the hardware.
#pragma once

#include <array>
#include <span>

#include "kernels/activations.h"
#include "kernels/matmul.h"
#include "models/model.h"
#include "weights/dense_weights.h"

namespace millrace {

// Rows of fp32 activations in the arena, one a token.
struct Rows {
  float* values = nullptr;  // [count][width]
  int64_t count = 0;
  int64_t width = 0;
};

// The same rows packed for the matmuls that read them: in as many kinds as their weights ask for.
class PackedRows {
 public:
  // Reserves room for the kinds that `consumers` need.
  PackedRows(const Execution& execution, int64_t count, std::span<const Linear* const> consumers,
             Arena& arena);

  // The form for this matrix.
  const PackedActivations& form_for(const PackedMatrix& matrix) const;
  const PackedActivations& form_of(ActivationKind kind) const;
  std::span<const PackedActivations> forms() const {
    return {forms_.data(), static_cast<size_t>(num_forms_)};
  }

 private:
  const Execution& execution_;
  std::array<PackedActivations, 2> forms_{};
  int num_forms_ = 0;
};

// Records layers into one forward. Holds references only: make one per forward.
class LayerRecorder {
 public:
  LayerRecorder(const ForwardScope& scope, const Execution& execution)
      : scope_(scope), execution_(execution) {}

  Rows rows(int64_t count, int64_t width);

  // The embeddings of the batch's tokens, rounded.
  Rows embed(const PackedMatrix& embedding);

  // RMS norm of each row, packed for `consumers`. `selected` (null: all) picks rows of x.
  struct Norm {
    const float* weight;
    float eps;
  };
  PackedRows norm(const Rows& x, const Norm& norm, std::span<const Linear* const> consumers,
                  const int32_t* selected = nullptr, int64_t num_selected = 0);

  // Rows as they are, packed for `consumers`.
  PackedRows pack(const Rows& x, std::span<const Linear* const> consumers);

  // A projection into `out`, columns [column, column + outputs), several of them in one step.
  struct Projection {
    const Linear* linear;
    Rows out;
    int64_t column = 0;
    bool round = true;
  };
  void project(const char* label, const PackedRows& x, std::span<const Projection> projections);

  // residual += W x, row-parallel over `leaves`.
  void project_residual(const char* label, const PackedRows& x, const Linear& linear,
                        const LeafCuts& leaves, const Rows& residual);

  // silu(gate x) * (up x).
  Rows gated(const PackedRows& x, const Linear& gate, const Linear& up);

  // cos and sin of the batch's positions: [num_tokens][rotary_dim / 2] each.
  struct RopeTable {
    const float* cos;
    const float* sin;
  };
  RopeTable rope_table(std::span<const float> inv_freq, float attention_factor);

  // Norm of the q and k heads (if the model has one), RoPE of both in place, and the write of k and
  // v to the cache. qkv holds q heads, k heads and v heads side by side.
  struct QkvStep {
    Rows qkv;
    const float* q_norm;
    const float* k_norm;
    RopeTable table;
    KvLayerView cache;
  };
  void rotate_and_cache(const QkvStep& step, const ModelConfig& config);

  // Copies the residual stream to the dump of `layer`.
  void dump_hidden(const Rows& x, int64_t layer);

 private:
  void matmul_step(const char* label, std::span<const MatmulArgs> matmuls);
  MatmulArgs matmul_args(const PackedRows& x, const Linear& linear) const;

  const ForwardScope& scope_;
  const Execution& execution_;
};

}  // namespace millrace
