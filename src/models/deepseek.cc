#include "models/deepseek.h"

#include <utility>

#include "models/rope_frequencies.h"

namespace millrace {
namespace {

MlaShape mla_shape(const ModelConfig& config, const Execution& execution) {
  const MlaConfig& mla = *config.mla;
  MlaShape shape = {.num_heads = config.num_heads,
                    .latent = mla.kv_lora_rank,
                    .rope = mla.qk_rope_head_dim,
                    .scale = mla.softmax_scale,
                    .recent_keys = execution.recent_keys};
  if (config.indexer) {
    shape.topk = config.indexer->topk;
    shape.index_heads = config.indexer->num_heads;
    shape.index_dim = config.indexer->head_dim;
  }
  return shape;
}

float residual_divisor(const ModelConfig& config, const Execution& execution) {
  const bool divided = execution.dtype == DType::kF16 && config.moe;
  return divided ? config.moe->routed_scaling_factor : 1.0f;
}

std::vector<MlaBlock> attention_blocks(const ModelWeights& weights, const ModelConfig& config,
                                       const Execution& execution) {
  std::vector<MlaBlock> blocks;
  blocks.reserve(weights.layers.size());
  for (const LayerWeights& layer : weights.layers) blocks.emplace_back(layer, config, execution);
  return blocks;
}

}  // namespace

DeepseekModel::DeepseekModel(const ModelConfig& config, const Execution& execution,
                             ModelWeights weights)
    : config_(config),
      execution_(execution),
      leaves_(resolve_leaf_axes(config)),
      inv_freq_(inverse_frequencies(config.rope)),
      divisor_(residual_divisor(config, execution)),
      scaled_eps_(config.rms_norm_eps / (divisor_ * divisor_)),
      weights_(std::move(weights)),
      head_{.matrix = weights_.head},
      mla_(mla_shape(config, execution), execution.isa, execution.bf16_class),
      attention_(attention_blocks(weights_, config_, execution_)),
      moe_shape_(moe_shape(config_, divisor_)),
      moe_(moe_blocks(weights_, moe_shape_, execution_)) {}

Result<const float*> DeepseekModel::record(const ForwardScope& scope) {
  MR_TRY(mla_.plan(scope.batch, execution_.num_threads));
  LayerRecorder layers(scope, execution_);
  Rows x = layers.embed(weights_.embedding);
  MlaForward forward = begin(layers);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const bool last = i + 1 == config_.num_layers;
    const Rows to = last ? layers.select(x, layers.last_layer_tokens()) : x;
    const int64_t mark = scope.arena.mark();
    attention(layers, forward, i, x, to);
    scope.arena.release(mark);
    x = to;
    if (x.count() > 0) feed_forward(layers, i, x);
    scope.arena.release(mark);
    layers.dump_hidden(x, i, divisor_);
    dump_topk(layers, forward, i);
  }
  return layers.logits(x, {.weight = weights_.final_norm, .eps = scaled_eps_}, head_);
}

MlaForward DeepseekModel::begin(LayerRecorder& layers) {
  MlaForward forward = {
      .attention = mla_,
      .table = layers.rope_table(inv_freq_, static_cast<float>(config_.rope.attention_factor)),
      .selection = {}};
  if (config_.indexer) {
    Arena& arena = layers.scope().arena;
    const int64_t tokens = layers.scope().batch.num_tokens;
    forward.selection.positions = arena.allocate<int32_t>(tokens * mla_.selection_stride());
    forward.selection.leaf_begin = arena.allocate<int32_t>(tokens * 17);
  }
  return forward;
}

// to += W_o attention(norm(x))
void DeepseekModel::attention(LayerRecorder& layers, MlaForward& forward, int64_t index,
                              const Rows& x, const Rows& to) {
  const auto at = static_cast<size_t>(index);
  const Linear& o = weights_.layers[at].mla.o;
  // The stream is divided from the first residual add on.
  const float eps = index == 0 ? config_.rms_norm_eps : scaled_eps_;
  const bool is_read = to.count() > 0 || layers.scope().topk_dump != nullptr;
  const Rows out =
      attention_[at].record(layers, forward, layers.scope().mla_cache[at], x, eps, is_read);
  if (to.count() == 0) return;
  if (index == 0 && divisor_ != 1.0f) layers.scale(to, 1.0f / divisor_);
  const Rows kept = layers.select(out, to.tokens);
  layers.project_residual("o_proj", layers.pack(kept, layers.kinds({&o})), o,
                          {leaves_.heads, 1.0f / divisor_}, to);
}

// x += mlp(norm(x)), dense or a mixture of experts
void DeepseekModel::feed_forward(LayerRecorder& layers, int64_t index, const Rows& x) {
  const auto at = static_cast<size_t>(index);
  const LayerWeights& layer = weights_.layers[at];
  const LayerRecorder::Norm norm = {.weight = layer.post_attention_norm, .eps = scaled_eps_};
  if (moe_[at]) return moe_[at]->record(layers, norm, x);
  layers.mlp_residual(layer.mlp, norm, {leaves_.ffn, 1.0f / divisor_}, x);
}

}  // namespace millrace
