// The weights of a dense decoder, packed for the kernels and owned in one piece of memory.
#pragma once

#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/thread_team.h"
#include "config/model_config.h"
#include "io/checkpoint.h"
#include "tensor/packed_matrix.h"

namespace millrace {

// A matrix and its bias ([outputs], fp32; null if the layer has none).
struct Linear {
  PackedMatrix matrix;
  const float* bias = nullptr;
};

// One decoder layer. Norm weights are fp32.
struct DenseLayerWeights {
  const float* input_norm = nullptr;  // [hidden]
  Linear q, k, v;                     // [heads*head_dim, hidden], [kv_heads*head_dim, hidden] twice
  const float* q_norm = nullptr;      // [head_dim], or null
  const float* k_norm = nullptr;
  Linear o;                                    // [hidden, heads*head_dim]
  const float* post_attention_norm = nullptr;  // [hidden]
  Linear gate, up;                             // [intermediate, hidden]
  Linear down;                                 // [hidden, intermediate]
};

// Views into `storage`.
struct DenseWeights {
  PackedMatrix embedding;             // [vocab, hidden]
  PackedMatrix head;                  // [vocab, hidden]; the embedding itself if tied
  const float* final_norm = nullptr;  // [hidden]
  std::vector<DenseLayerWeights> layers;
  Buffer storage;

  // Bytes of the packed weights, all of them.
  int64_t total_bytes() const { return static_cast<int64_t>(storage.size()); }
};

// Packs all weights of a checkpoint on all threads of `team`; mapped pages are let go of as they
// are packed, so that the peak is the packed size and little more. Errors name the tensor: missing,
// of another shape, of a type that is not a weight format; or there, in the decoder's namespace,
// and of no use to this configuration (a bias or norm that would silently be left out).
Result<DenseWeights> load_dense_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                        ThreadTeam& team, Progress& progress);

}  // namespace millrace
