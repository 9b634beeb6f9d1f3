#include "models/llama.h"

#include <cmath>
#include <utility>

#include "models/rope_frequencies.h"

namespace millrace {
namespace {

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
      gqa_(gqa_shape(config, execution), execution.isa),
      logits_gqa_(gqa_shape(config, execution), execution.isa),
      moe_shape_(moe_shape(config_, 1.0f)),
      moe_(moe_blocks(weights_, moe_shape_, execution_)) {}

Result<const float*> LlamaModel::record(const ForwardScope& scope) {
  LayerRecorder layers(scope, execution_);
  MR_TRY(gqa_.plan(scope.batch.sequences, execution_.num_threads));
  if (layers.last_layer_tokens() != scope.batch.tokens) {
    MR_TRY(logits_gqa_.plan(scope.batch.logits_sequences, execution_.num_threads));
  }
  const auto table =
      layers.rope_table(inv_freq_, static_cast<float>(config_.rope.attention_factor));

  Rows x = layers.embed(weights_.embedding);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const bool last = i + 1 == config_.num_layers;
    const Rows to = last ? layers.select(x, layers.last_layer_tokens()) : x;
    const int64_t mark = scope.arena.mark();
    attention(layers, i, table, x, to);
    scope.arena.release(mark);
    x = to;
    if (x.count() > 0) feed_forward(layers, i, x);
    scope.arena.release(mark);
    layers.dump_hidden(x, i);
  }
  return layers.logits(x, {.weight = weights_.final_norm, .eps = config_.rms_norm_eps}, head_);
}

// to += W_o attention(norm(x))
void LlamaModel::attention(LayerRecorder& layers, int64_t index, LayerRecorder::RopeTable table,
                           const Rows& x, const Rows& to) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
  const KvLayerView& cache = layers.scope().cache[static_cast<size_t>(index)];
  const int64_t q_size = config_.q_size();
  const int64_t kv_size = config_.kv_size();

  const PackedRows h = layers.norm(x, {.weight = layer.input_norm, .eps = config_.rms_norm_eps},
                                   layers.kinds({&layer.gqa.q, &layer.gqa.k, &layer.gqa.v}));
  // q and k are rounded after RoPE, v when it is written to the cache.
  const Rows qkv = layers.rows(x.tokens, q_size + 2 * kv_size);
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

  if (to.count() == 0) return;
  const Rows q = layers.select(qkv, to.tokens, q_size);
  const Rows out = layers.rows(to.tokens, q_size);
  GqaAttention& gqa = to.tokens == x.tokens ? gqa_ : logits_gqa_;
  gqa.record(layers.scope().program, {.q = q.values,
                                      .q_stride = q.width,
                                      .cache = cache,
                                      .out = out.values,
                                      .out_stride = out.width});
  layers.project_residual("o_proj", layers.pack(out, layers.kinds({&layer.gqa.o})), layer.gqa.o,
                          {leaves_.heads}, to);
}

// x += mlp(norm(x)), dense or a mixture of experts
void LlamaModel::feed_forward(LayerRecorder& layers, int64_t index, const Rows& x) {
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
  const LayerRecorder::Norm norm = {.weight = layer.post_attention_norm,
                                    .eps = config_.rms_norm_eps};
  const auto& moe = moe_[static_cast<size_t>(index)];
  if (moe) return moe->record(layers, norm, x);
  layers.mlp_residual(layer.mlp, norm, {leaves_.ffn}, x);
}

}  // namespace millrace
