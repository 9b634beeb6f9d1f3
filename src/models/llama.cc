#include "models/llama.h"

#include <cmath>
#include <utility>

#include "kernels/rope.h"

namespace millrace {
namespace {

RopeScaling scaling_of(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return RopeScaling::kNone;
    case RopeType::kLinear:
      return RopeScaling::kLinear;
    case RopeType::kLlama3:
      return RopeScaling::kLlama3;
    case RopeType::kYarn:
      return RopeScaling::kYarn;
  }
  return RopeScaling::kNone;
}

std::vector<float> inverse_frequencies(const RopeConfig& rope) {
  return rope_inverse_frequencies(
      {.scaling = scaling_of(rope.type),
       .theta = rope.theta,
       .rotary_dim = rope.rotary_dim,
       .factor = rope.factor,
       .low_freq_factor = rope.low_freq_factor,
       .high_freq_factor = rope.high_freq_factor,
       .original_max_position = static_cast<double>(rope.original_max_position),
       .beta_fast = rope.beta_fast,
       .beta_slow = rope.beta_slow,
       .truncate = rope.truncate,
       .freq_divisors = rope.freq_divisors});
}

GqaShape gqa_shape(const ModelConfig& config, const Execution& execution) {
  return {.num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
          .dtype = execution.dtype};
}

}  // namespace

LlamaModel::LlamaModel(const ModelConfig& config, const Execution& execution, ModelWeights weights)
    : config_(config),
      execution_(execution),
      leaves_(resolve_leaf_axes(config)),
      inv_freq_(inverse_frequencies(config.rope)),
      weights_(std::move(weights)),
      head_{.matrix = weights_.head},
      gqa_(gqa_shape(config, execution), execution.isa) {}

Result<const float*> LlamaModel::record(const ForwardScope& scope) {
  MR_TRY(gqa_.plan(scope.batch, execution_.num_threads));
  LayerRecorder layers(scope, execution_);
  const auto table =
      layers.rope_table(inv_freq_, static_cast<float>(config_.rope.attention_factor));

  const Rows x = layers.embed(weights_.embedding);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const int64_t mark = scope.arena.mark();
    attention(layers, scope, i, table, x);
    scope.arena.release(mark);
    mlp(layers, i, x);
    scope.arena.release(mark);
    layers.dump_hidden(x, i);
  }
  return head(layers, scope, x);
}

// x += W_o attention(norm(x))
void LlamaModel::attention(LayerRecorder& layers, const ForwardScope& scope, int64_t index,
                           LayerRecorder::RopeTable table, const Rows& x) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
  const KvLayerView& cache = scope.cache[static_cast<size_t>(index)];
  const int64_t q_size = config_.q_size();
  const int64_t kv_size = config_.kv_size();

  const PackedRows h = layers.norm(x, {.weight = layer.input_norm, .eps = config_.rms_norm_eps},
                                   layers.kinds({&layer.gqa.q, &layer.gqa.k, &layer.gqa.v}));
  // q and k are rounded after RoPE, v when it is written to the cache.
  const Rows qkv = layers.rows(x.count, q_size + 2 * kv_size);
  const LayerRecorder::Projection projections[] = {
      {.linear = &layer.gqa.q, .out = qkv, .column = 0, .round = false},
      {.linear = &layer.gqa.k, .out = qkv, .column = q_size, .round = false},
      {.linear = &layer.gqa.v, .out = qkv, .column = q_size + kv_size, .round = false}};
  layers.project("qkv", h, projections);
  layers.rotate_and_cache({.qkv = qkv,
                           .q_norm = layer.gqa.q_norm,
                           .k_norm = layer.gqa.k_norm,
                           .table = table,
                           .cache = cache},
                          config_);

  const Rows out = layers.rows(x.count, q_size);
  gqa_.record(scope.program, {.q = qkv.values,
                              .q_stride = qkv.width,
                              .cache = cache,
                              .out = out.values,
                              .out_stride = out.width});
  layers.project_residual("o_proj", layers.pack(out, layers.kinds({&layer.gqa.o})), layer.gqa.o,
                          leaves_.heads, x);
}

// x += W_down (silu(W_gate norm(x)) * W_up norm(x))
void LlamaModel::mlp(LayerRecorder& layers, int64_t index, const Rows& x) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
  ActivationKinds kinds;
  kinds.add(layers.gated_kind(layer.mlp.gate, layer.mlp.up));
  const PackedRows h =
      layers.norm(x, {.weight = layer.post_attention_norm, .eps = config_.rms_norm_eps}, kinds);
  const Rows gated = layers.gated(h, layer.mlp.gate, layer.mlp.up);
  layers.project_residual("down_proj", layers.pack(gated, layers.kinds({&layer.mlp.down})),
                          layer.mlp.down, leaves_.ffn, x);
}

// Logits of the rows that want them, never rounded.
const float* LlamaModel::head(LayerRecorder& layers, const ForwardScope& scope, const Rows& x) {
  const ForwardBatch& batch = scope.batch;
  const Rows logits = layers.rows(batch.num_logits, config_.vocab_size);
  if (batch.num_logits == 0) return logits.values;
  const PackedRows h = layers.norm(x, {.weight = weights_.final_norm, .eps = config_.rms_norm_eps},
                                   layers.kinds({&head_}), batch.logits_rows, batch.num_logits);
  const LayerRecorder::Projection projection[] = {
      {.linear = &head_, .out = logits, .round = false}};
  layers.project("lm_head", h, projection);
  return logits.values;
}

}  // namespace millrace
