// The weights of a decoder, packed for the kernels and owned in one piece of memory.
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

// Grouped-query attention. Norm weights are fp32.
struct GqaWeights {
  Linear q, k, v;                 // [heads*head_dim, hidden], [kv_heads*head_dim, hidden] twice
  const float* q_norm = nullptr;  // [head_dim], or null
  const float* k_norm = nullptr;
  Linear o;  // [hidden, heads*head_dim]
};

// The indexer of DSA; its matrices are empty (n == 0) in layers that have none.
struct IndexerWeights {
  Linear q;                            // wq_b: [index heads*index dim, q_lora_rank]
  Linear k;                            // wk: [index dim, hidden]
  Linear head_weights;                 // weights_proj: [index heads, hidden]
  const float* k_norm = nullptr;       // LayerNorm: [index dim]
  const float* k_norm_bias = nullptr;  // [index dim]
};

// Multi-head latent attention.
struct MlaWeights {
  Linear q_a;                        // [q_lora_rank, hidden]; empty without a low-rank query
  const float* q_a_norm = nullptr;   // [q_lora_rank]
  Linear q_b;                        // [heads*(nope+rope), q_lora_rank], or q_proj: [.., hidden]
  Linear kv_a;                       // [kv_lora_rank + rope, hidden]
  const float* kv_a_norm = nullptr;  // [kv_lora_rank]
  // kv_b_proj, split and absorbed: for each head
  std::vector<PackedMatrix> k_up;  // [kv_lora_rank, nope]: W_UK transposed, applied to the query
  std::vector<PackedMatrix> v_up;  // [v_head_dim, kv_lora_rank]: W_UV
  Linear o;                        // [hidden, heads*v_head_dim]
  IndexerWeights indexer;
};

// A gated MLP: down(silu(gate) * up).
struct MlpWeights {
  Linear gate, up;  // [columns, hidden]
  Linear down;      // [hidden, columns]
};

// A mixture of experts.
struct MoeWeights {
  Linear router;                           // [experts, hidden]
  const float* correction_bias = nullptr;  // [experts], or null
  // By expert; gate, up, down as in MlpWeights.
  std::vector<PackedMatrix> gate, up, down;
  MlpWeights shared;  // empty without shared experts
};

struct LayerWeights {
  const float* input_norm = nullptr;           // [hidden]
  const float* post_attention_norm = nullptr;  // [hidden]
  GqaWeights gqa;                              // or
  MlaWeights mla;
  MlpWeights mlp;  // or
  MoeWeights moe;
};

// Views into `storage`.
struct ModelWeights {
  PackedMatrix embedding;             // [vocab, hidden]
  PackedMatrix head;                  // [vocab, hidden]; the embedding itself if tied
  const float* final_norm = nullptr;  // [hidden]
  std::vector<LayerWeights> layers;
  Buffer storage;

  // Bytes of the packed weights, all of them.
  int64_t total_bytes() const { return static_cast<int64_t>(storage.size()); }
};

// Packs all weights of a checkpoint on all threads of `team`; mapped pages are let go of as they
// are packed, so that the peak is the packed size and little more. Matrices keep their format,
// but for: routers are fp32; k_up is transposed, which formats of blocks become fp32 for. Errors
// name the tensor: missing, of another shape, of a type that is not a weight format; or there, in
// the decoder's namespace, and of no use to this configuration (a bias or norm that would silently
// be left out). Layers of multi-token prediction and indexers of layers that share another's
// selection are left out and named once in the log.
Result<ModelWeights> load_model_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                        ThreadTeam& team, Progress& progress);

// Bytes that the packed weights will take: total_bytes() of what load_model_weights gives. Errors
// as of it, but for what only the contents of tensors show: reads names, types and shapes.
Result<int64_t> packed_bytes(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace millrace
