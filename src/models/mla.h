// Multi-head latent attention as steps of a forward, dense or with DSA's indexer, always in the
// absorbed form: W_UK goes into the query, W_UV comes after the weighted sum of latents
// (DeepSeek-V2, section 2.1; DeepSeek-V3.2, section 2.1). The nine steps are numbered in mla.cc.
#pragma once

#include "attention/mla_attention.h"
#include "kernels/grouped_matmul.h"
#include "models/layers.h"

namespace millrace {

// One forward's state that goes from layer to layer.
struct MlaForward {
  MlaAttention& attention;
  LayerRecorder::RopeTable table;
  // The keys that the last full layer chose; null positions in dense models.
  SelectionRows selection;
};

// One layer's attention. Holds views; the configuration and the weights must outlive it.
class MlaBlock {
 public:
  MlaBlock(const LayerWeights& layer, const ModelConfig& config, const Execution& execution);

  // Heads' outputs [tokens][heads * v_head_dim], rounded: all but the output projection.
  // `norm_eps` is that of the layer's input norm. Not `is_read`: what the tokens attend to is of no
  // use to anybody; ends with the cache write, the outputs are never written.
  Rows record(LayerRecorder& layers, MlaForward& forward, const MlaLayerView& cache, const Rows& x,
              float norm_eps, bool is_read) const;

 private:
  struct Projected {
    Rows q, kv, index_q, index_k, index_weights;
  };
  Projected project(LayerRecorder& layers, const Rows& x, float norm_eps) const;
  void rotate_and_write(LayerRecorder& layers, const MlaForward& forward, const MlaLayerView& cache,
                        const Projected& rows) const;
  void attend(LayerRecorder& layers, MlaForward& forward, const MlaLayerView& cache,
              const MlaRound& round, const Projected& rows, const Rows& out) const;
  GroupedMatmulArgs per_head(const std::vector<PackedMatrix>& matrices, int64_t tokens) const;

  const MlaWeights& weights_;
  const float* input_norm_;
  const ModelConfig& config_;
  const MlaConfig& mla_;
  const Execution& execution_;
  int64_t scratch_bytes_ = 0;  // of the matmuls by head
};

// Records the dump of a layer's selection (ForwardScope::topk_dump), if one is wanted.
void dump_topk(LayerRecorder& layers, const MlaForward& forward, int64_t layer);

}  // namespace millrace
