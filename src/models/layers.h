// The layers that decoders are made of, as recorders of steps: norm, linear, gated MLP, RoPE and
// cache write. A layer knows shapes and weights; it does not know the hardware.
#pragma once

#include <array>
#include <initializer_list>
#include <span>

#include "kernels/activations.h"
#include "kernels/grouped_matmul.h"
#include "kernels/matmul.h"
#include "models/model.h"
#include "tensor/token_layout.h"
#include "weights/model_weights.h"

namespace millrace {

// Rows of fp32 activations in the arena, and which tokens they are.
struct Rows {
  float* values = nullptr;  // [count()][width]
  TokenLayout tokens;
  int64_t width = 0;

  int64_t count() const { return tokens.rows(); }
  // Rows [begin, end); null stays null.
  Rows slice(int64_t begin, int64_t end) const {
    return {values == nullptr ? nullptr : values + begin * width, tokens.rows_between(begin, end),
            width};
  }
};

// The kinds of packed activations that the matmuls of some rows read, each once.
class ActivationKinds {
 public:
  void add(ActivationKind kind);
  std::span<const ActivationKind> list() const {
    return {kinds_.data(), static_cast<size_t>(count_)};
  }

 private:
  std::array<ActivationKind, kNumActivationKinds> kinds_{};
  int count_ = 0;
};

// Rows packed for the matmuls that read them, in as many kinds as those ask for.
class PackedRows {
 public:
  PackedRows(const Execution& execution, const TokenLayout& tokens, int64_t width,
             const ActivationKinds& kinds, Arena& arena);

  const TokenLayout& tokens() const { return tokens_; }

  // The form of a kind that the rows were packed in.
  const PackedActivations& form(ActivationKind kind) const;
  std::span<const PackedActivations> forms() const {
    return {forms_.data(), static_cast<size_t>(num_forms_)};
  }

 private:
  TokenLayout tokens_;
  std::array<PackedActivations, kNumActivationKinds> forms_{};
  int num_forms_ = 0;
};

// The matmul kernels that an execution uses.
const MatmulKernels& kernels_of(const Execution& execution);

// Records layers into one forward. Holds references only: make one per forward. Where rows meet
// rows, their token layouts are compared; that they differ is an internal error that names both.
class LayerRecorder {
 public:
  LayerRecorder(const ForwardScope& scope, const Execution& execution)
      : scope_(scope), execution_(execution) {}

  Rows rows(const TokenLayout& tokens, int64_t width);

  // The embeddings of the batch's tokens, rounded.
  Rows embed(const PackedMatrix& embedding);

  // The kinds that these layers read their input in.
  ActivationKinds kinds(std::initializer_list<const Linear*> consumers) const;
  // The one kind that gate and up both read: theirs, or the exact one if theirs differ.
  ActivationKind gated_kind(const Linear& gate, const Linear& up) const;

  // The tokens whose rows of the last layer somebody reads: those that need logits, or all if
  // hidden states are dumped. (All tokens' keys and values go into its cache.)
  TokenLayout last_layer_tokens() const;
  // The rows of x that `tokens` (all, or those that need logits) has: x itself where it has all,
  // else copies of their first `width` columns.
  Rows select(const Rows& x, const TokenLayout& tokens, int64_t width);
  Rows select(const Rows& x, const TokenLayout& tokens) { return select(x, tokens, x.width); }

  // RMS norm of each row, packed. `keep`: where the normed rows go as well, [rows][width].
  struct Norm {
    const float* weight;
    float eps;
  };
  PackedRows norm(const Rows& x, const Norm& norm, const ActivationKinds& kinds);
  PackedRows norm_and_keep(const Rows& x, const Norm& norm, const ActivationKinds& kinds,
                           const Rows& keep);

  // Rows as they are, packed.
  PackedRows pack(const Rows& x, const ActivationKinds& kinds);

  // A projection into `out`, columns [column, column + outputs), several of them in one step.
  struct Projection {
    const Linear* linear;
    Rows out;
    int64_t column = 0;
    bool round = true;
  };
  void project(const char* label, const PackedRows& x, std::span<const Projection> projections);

  // A row-parallel matmul: how its inputs are cut into leaves, and what multiplies each leaf's sum.
  struct RowParallel {
    const LeafCuts& leaves;
    float leaf_scale = 1.0f;
  };
  // residual += W x.
  void project_residual(const char* label, const PackedRows& x, const Linear& linear,
                        const RowParallel& parallel, const Rows& residual);
  // out = W x, not rounded.
  void project_unrounded(const char* label, const PackedRows& x, const Linear& linear,
                         const RowParallel& parallel, const Rows& out);

  // x += W_down (silu(W_gate norm(x)) * W_up norm(x))
  void mlp_residual(const MlpWeights& weights, const Norm& norm, const RowParallel& parallel,
                    const Rows& x);

  // silu(gate x) * (up x), packed as weights.down reads it; x packed in gated_kind(gate, up).
  PackedRows gated(const PackedRows& x, const MlpWeights& weights);

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

  // Matmuls by head or by expert, in one step; `scratch_bytes` is grouped_matmul_scratch_bytes().
  void grouped_matmul(const char* label, const GroupedMatmulArgs& args, int64_t scratch_bytes);

  // x = round(x * factor), in place.
  void scale(const Rows& x, float factor);

  // Logits of the rows that need them, never rounded: [num_logits][vocab]. x: those rows, or all.
  const float* logits(const Rows& x, const Norm& norm, const Linear& head);

  // Copies the residual stream, times `factor`, to the dump of `layer`.
  void dump_hidden(const Rows& x, int64_t layer, float factor = 1.0f);

  ActivationKind kind_of(const PackedMatrix& matrix) const;
  ActivationKind kind_of(const Linear& linear) const { return kind_of(linear.matrix); }
  static void check_layouts(const char* label, const TokenLayout& a, const TokenLayout& b);
  const ForwardScope& scope() const { return scope_; }
  const Execution& execution() const { return execution_; }

 private:
  void matmul_step(const char* label, std::span<const MatmulArgs> matmuls);
  PackedRows norm_pack(const Rows& x, const Norm& norm, const ActivationKinds& kinds, float* keep);
  MatmulArgs matmul_args(const PackedRows& x, const Linear& linear, ActivationKind kind) const;
  MatmulArgs row_parallel_args(const PackedRows& x, const Linear& linear,
                               const RowParallel& parallel) const;

  const ForwardScope& scope_;
  const Execution& execution_;
};

}  // namespace millrace
