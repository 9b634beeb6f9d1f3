#include "models/mla.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/indexer.h"
#include "kernels/row_kernels.h"

namespace millrace {
namespace {

// The norms of the latents and of the index keys have an epsilon of their own, whatever
// rms_norm_eps says (docs/numerics.md, "Norms").
constexpr float kLatentEps = 1e-6f;
constexpr int64_t kRowRun = 4;

// Steps 2, 4 and 5 of one token: norm of the latent, RoPE, cache write.
struct RotateStep {
  const RowKernels* kernels;
  const MlaKernels* mla;
  const IndexerKernels* indexer;
  int num_heads;
  RopeArgs q_rope, key_rope;
  RoundArgs q_nope;  // of token 0; its rows are heads
  int64_t q_stride;
  RoundArgs latent_round;
  RmsNormArgs latent_norm;
  MlaWriteArgs write;
  // Null index_norm.x: a layer without an indexer.
  int index_heads;
  LayerNormArgs index_norm;
  RopeArgs index_q_rope, index_k_rope;
  RoundArgs index_q_rest;  // as q_nope
  int64_t index_q_stride;
  RoundArgs index_weights;
  IndexWriteArgs index_write;
};

void round_heads(const RotateStep& step, RoundArgs args, int64_t token_stride, int heads,
                 int64_t token) {
  args.x += token * token_stride;
  step.kernels->round(args, 0, heads);
}

void run_rotate(const RotateStep& step, int64_t begin, int64_t end, std::byte*) {
  step.kernels->rope(step.q_rope, begin, end);
  step.kernels->round(step.latent_round, begin, end);
  step.kernels->rms_norm(step.latent_norm, begin, end);
  step.kernels->rope(step.key_rope, begin, end);
  for (int64_t token = begin; token < end; ++token) {
    round_heads(step, step.q_nope, step.q_stride, step.num_heads, token);
  }
  step.mla->write(step.write, begin, end);
  if (step.index_norm.x == nullptr) return;
  step.kernels->layer_norm(step.index_norm, begin, end);
  step.kernels->rope(step.index_k_rope, begin, end);
  step.kernels->rope(step.index_q_rope, begin, end);
  step.kernels->round(step.index_weights, begin, end);
  for (int64_t token = begin; token < end; ++token) {
    round_heads(step, step.index_q_rest, step.index_q_stride, step.index_heads, token);
  }
  step.indexer->write(step.index_write, begin, end);
}

// What the parts of a RotateStep are filled from.
struct RotateContext {
  const ModelConfig& config;
  const MlaWeights& weights;
  const Execution& execution;
  LayerRecorder::RopeTable table;
  const int64_t* slot_mapping;
  const MlaLayerView& cache;
};

// Heads of `head_dim` elements whose rotated ones begin at `column` of a row.
RopeArgs rope_args(const RotateContext& at, const Rows& x, int64_t column, int num_heads,
                   int head_dim, bool interleaved) {
  return {.x = x.values == nullptr ? nullptr : x.values + column,
          .row_stride = x.width,
          .num_heads = num_heads,
          .head_dim = head_dim,
          .rotary_dim = at.config.rope.rotary_dim,
          .interleaved = interleaved,
          .cos = at.table.cos,
          .sin = at.table.sin,
          .dtype = at.execution.dtype};
}

void set_latents(const RotateContext& at, const Rows& q, const Rows& kv, RotateStep& step) {
  const MlaConfig& mla = *at.config.mla;
  const int num_heads = at.config.num_heads;
  const bool interleaved = at.config.rope.interleaved;
  const DType dtype = at.execution.dtype;
  step.kernels = &row_kernels(at.execution.isa);
  step.mla = &mla_kernels(at.execution.isa);
  step.indexer = &indexer_kernels(at.execution.isa);
  step.num_heads = num_heads;
  step.q_rope = rope_args(at, q, mla.qk_nope_head_dim, num_heads, mla.qk_head_dim(), interleaved);
  step.key_rope = rope_args(at, kv, mla.kv_lora_rank, 1, mla.qk_rope_head_dim, interleaved);
  step.q_nope = {
      .x = q.values, .stride = mla.qk_head_dim(), .n = mla.qk_nope_head_dim, .dtype = dtype};
  step.q_stride = q.width;
  step.latent_round = {.x = kv.values, .stride = kv.width, .n = mla.kv_lora_rank, .dtype = dtype};
  step.latent_norm = {.x = kv.values,
                      .x_stride = kv.width,
                      .weight = at.weights.kv_a_norm,
                      .out = kv.values,
                      .out_stride = kv.width,
                      .n = mla.kv_lora_rank,
                      .eps = kLatentEps,
                      .dtype = dtype};
  step.write = {.latent = kv.values,
                .latent_stride = kv.width,
                .rope_key = kv.values == nullptr ? nullptr : kv.values + mla.kv_lora_rank,
                .rope_stride = kv.width,
                .slot_mapping = at.slot_mapping,
                .cache = at.cache};
}

struct IndexRows {
  const Rows& query;
  const Rows& key;
  const Rows& weights;
};

void set_indexer(const RotateContext& at, const IndexRows& rows, RotateStep& step) {
  const IndexerConfig& indexer = *at.config.indexer;
  const int rotary_dim = at.config.rope.rotary_dim;
  const auto& [query, key, weights] = rows;
  step.index_heads = indexer.num_heads;
  step.index_norm = {.x = key.values,
                     .x_stride = key.width,
                     .weight = at.weights.indexer.k_norm,
                     .bias = at.weights.indexer.k_norm_bias,
                     .out = key.values,
                     .out_stride = key.width,
                     .n = key.width,
                     .eps = kLatentEps,
                     .dtype = at.execution.dtype};
  step.index_q_rope =
      rope_args(at, query, 0, indexer.num_heads, indexer.head_dim, indexer.interleaved);
  step.index_k_rope = rope_args(at, key, 0, 1, indexer.head_dim, indexer.interleaved);
  step.index_q_rest = {.x = query.values == nullptr ? nullptr : query.values + rotary_dim,
                       .stride = indexer.head_dim,
                       .n = indexer.head_dim - rotary_dim,
                       .dtype = at.execution.dtype};
  step.index_q_stride = query.width;
  step.index_weights = {
      .x = weights.values,
      .stride = weights.width,
      .n = indexer.num_heads,
      .factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(indexer.num_heads)))};
  step.index_write = {.key = key.values,
                      .key_stride = key.width,
                      .slot_mapping = at.slot_mapping,
                      .cache = at.cache};
}

// Packs columns of rows, a run for each head, for the head's own matmul. An item is a tile of
// packed rows: they lie interleaved, and two threads must not write to one cache line.
struct PackHeadsStep {
  GroupedMatmulArgs matmul;  // whose input is written
  const float* x;            // [tokens][stride]; head h's columns begin at h * head_columns
  int64_t stride;
  int64_t head_columns;
  int64_t tiles;  // of a head
  // What follows the packed columns in each head, copied as it is: rope parts of queries.
  int64_t tail = 0;          // elements; 0: nothing
  float* tail_to = nullptr;  // [tokens][tail_stride], of the first head
  int64_t tail_stride = 0;
  int64_t tail_head_columns = 0;
};

void run_pack_heads(const PackHeadsStep& step, int64_t begin, int64_t end, std::byte*) {
  for (int64_t item = begin; item < end; ++item) {
    const int64_t head = item / step.tiles;
    const PackedActivations packed = group_input(step.matmul, head);
    const int64_t first = packed.tile_begin(item % step.tiles);
    const int64_t last = packed.tile_begin(item % step.tiles + 1);
    const float* x = step.x + head * step.head_columns;
    pack_activations(*step.matmul.shared.kernels, x, step.stride, first, last, packed);
    for (int64_t token = first; step.tail > 0 && token < last; ++token) {
      std::memcpy(step.tail_to + token * step.tail_stride + head * step.tail_head_columns,
                  x + token * step.stride + packed.k,
                  static_cast<size_t>(step.tail) * sizeof(float));
    }
  }
}

struct TopkStep {
  SelectionRows selection;
  int64_t stride;
  int32_t* to;
  int64_t topk;
};

void run_topk(const TopkStep& step, int64_t begin, int64_t end, std::byte*) {
  for (int64_t token = begin; token < end; ++token) {
    const int32_t* positions = step.selection.positions + token * step.stride;
    const int32_t count = step.selection.leaf_begin[17 * token + 16];
    int32_t* to = step.to + token * step.topk;
    std::copy(positions, positions + count, to);
    std::sort(to, to + count);
    std::fill(to + count, to + step.topk, -1);
  }
}

}  // namespace

MlaBlock::MlaBlock(const LayerWeights& layer, const ModelConfig& config, const Execution& execution)
    : weights_(layer.mla),
      input_norm_(layer.input_norm),
      config_(config),
      mla_(*config.mla),
      execution_(execution) {
  scratch_bytes_ = std::max(grouped_matmul_scratch_bytes(per_head(weights_.k_up, 1)),
                            grouped_matmul_scratch_bytes(per_head(weights_.v_up, 1)));
}

// A matmul for each head on the tokens' rows of that head.
GroupedMatmulArgs MlaBlock::per_head(const std::vector<PackedMatrix>& matrices,
                                     int64_t tokens) const {
  const MatmulKernels& kernels = kernels_of(execution_);
  const PackedMatrix& matrix = matrices.front();
  const ActivationKind kind = activation_kind_for(kernels, matrix, execution_.int8_activations);
  GroupedMatmulArgs args;
  args.shared.kernels = &kernels;
  args.shared.input = packed_activations(kernels, kind, tokens, matrix.k, nullptr);
  args.weights = matrices.data();
  args.num_groups = config_.num_heads;
  args.num_threads = execution_.num_threads;
  return args;
}

// Steps 1 to 3: low-rank projections of the normed hidden state, norm of the query's latent,
// queries.
MlaBlock::Projected MlaBlock::project(LayerRecorder& layers, const Rows& x, float norm_eps) const {
  const IndexerWeights& indexer = weights_.indexer;
  const bool has_indexer = indexer.q.matrix.n > 0;
  const bool low_rank = mla_.q_lora_rank > 0;
  Projected rows;
  rows.q = layers.rows(x.tokens, config_.num_heads * mla_.qk_head_dim());
  rows.kv = layers.rows(x.tokens, mla_.row_size());
  if (has_indexer) {
    rows.index_q = layers.rows(x.tokens, indexer.q.matrix.n);
    rows.index_k = layers.rows(x.tokens, indexer.k.matrix.n);
    rows.index_weights = layers.rows(x.tokens, indexer.head_weights.matrix.n);
  }

  ActivationKinds kinds = layers.kinds({low_rank ? &weights_.q_a : &weights_.q_b, &weights_.kv_a});
  if (has_indexer) {
    kinds.add(layers.kind_of(indexer.k));
    kinds.add(layers.kind_of(indexer.head_weights));
  }
  const PackedRows h = layers.norm(x, {.weight = input_norm_, .eps = norm_eps}, kinds);
  std::array<LayerRecorder::Projection, 4> down;
  size_t count = 0;
  const Rows q_latent = layers.rows(x.tokens, mla_.q_lora_rank);
  if (low_rank) {
    down[count++] = {.linear = &weights_.q_a, .out = q_latent};
  } else {
    down[count++] = {.linear = &weights_.q_b, .out = rows.q, .round = false};
  }
  down[count++] = {.linear = &weights_.kv_a, .out = rows.kv, .round = false};
  if (has_indexer) {
    down[count++] = {.linear = &indexer.k, .out = rows.index_k, .round = false};
    down[count++] = {.linear = &indexer.head_weights, .out = rows.index_weights, .round = false};
  }
  layers.project("q_a kv_a", h, {down.data(), count});
  if (!low_rank) return rows;

  ActivationKinds latent_kinds = layers.kinds({&weights_.q_b});
  if (has_indexer) latent_kinds.add(layers.kind_of(indexer.q));
  const PackedRows r =
      layers.norm(q_latent, {.weight = weights_.q_a_norm, .eps = kLatentEps}, latent_kinds);
  std::array<LayerRecorder::Projection, 2> up;
  up[0] = {.linear = &weights_.q_b, .out = rows.q, .round = false};
  up[1] = {.linear = &indexer.q, .out = rows.index_q, .round = false};
  layers.project("q_b", r, {up.data(), has_indexer ? size_t{2} : size_t{1}});
  return rows;
}

void MlaBlock::rotate_and_write(LayerRecorder& layers, const MlaForward& forward,
                                const MlaLayerView& cache, const Projected& rows) const {
  const ForwardBatch& batch = layers.scope().batch;
  // Slots, positions and block tables are the batch's.
  LayerRecorder::check_layouts("rope and cache", rows.kv.tokens, batch.tokens);
  const RotateContext context = {.config = config_,
                                 .weights = weights_,
                                 .execution = execution_,
                                 .table = forward.table,
                                 .slot_mapping = batch.slot_mapping,
                                 .cache = cache};
  RotateStep step{};
  set_latents(context, rows.q, rows.kv, step);
  if (rows.index_k.width > 0) {
    set_indexer(context, {rows.index_q, rows.index_k, rows.index_weights}, step);
  }
  layers.scope().program.add<RotateStep>("rope and cache", {rows.kv.count(), kRowRun}, run_rotate,
                                         step);
}

// Steps 3 (absorption), 7 and 8 for a round of tokens.
void MlaBlock::attend(LayerRecorder& layers, MlaForward& forward, const MlaLayerView& cache,
                      const MlaRound& round, const Projected& rows, const Rows& out) const {
  Program& program = layers.scope().program;
  Arena& arena = layers.scope().arena;
  const int64_t mark = arena.mark();
  const int64_t tokens = round.token_end - round.token_begin;
  const int64_t heads = config_.num_heads;
  const Rows q = rows.q.slice(round.token_begin, round.token_end);
  const Rows absorbed = layers.rows(q.tokens, heads * mla_.row_size());
  const Rows latents = layers.rows(q.tokens, heads * mla_.kv_lora_rank);

  GroupedMatmulArgs k_up = per_head(weights_.k_up, tokens);
  k_up.shared.input.data = arena.allocate_bytes(heads * k_up.shared.input.bytes());
  k_up.shared.out = absorbed.values;
  k_up.shared.out_stride = absorbed.width;
  k_up.out_group_columns = mla_.row_size();
  program.add<PackHeadsStep>(
      "pack queries", {heads * k_up.shared.input.num_tiles(), 1}, run_pack_heads,
      {.matmul = k_up,
       .x = q.values,
       .stride = q.width,
       .head_columns = mla_.qk_head_dim(),
       .tiles = k_up.shared.input.num_tiles(),
       .tail = mla_.qk_rope_head_dim,
       .tail_to = absorbed.values == nullptr ? nullptr : absorbed.values + mla_.kv_lora_rank,
       .tail_stride = absorbed.width,
       .tail_head_columns = mla_.row_size()});
  layers.grouped_matmul("w_uk", k_up, scratch_bytes_);

  forward.attention.record(program, round,
                           {.q = absorbed.values,
                            .out = latents.values,
                            .cache = cache,
                            .selection = forward.selection});

  GroupedMatmulArgs v_up = per_head(weights_.v_up, tokens);
  const Rows values = out.slice(round.token_begin, round.token_end);
  v_up.shared.input.data = arena.allocate_bytes(heads * v_up.shared.input.bytes());
  v_up.shared.round = execution_.dtype;
  v_up.shared.out = values.values;
  v_up.shared.out_stride = values.width;
  v_up.out_group_columns = mla_.v_head_dim;
  program.add<PackHeadsStep>("pack latents", {heads * v_up.shared.input.num_tiles(), 1},
                             run_pack_heads,
                             {.matmul = v_up,
                              .x = latents.values,
                              .stride = latents.width,
                              .head_columns = mla_.kv_lora_rank,
                              .tiles = v_up.shared.input.num_tiles()});
  layers.grouped_matmul("w_uv", v_up, scratch_bytes_);
  arena.release(mark);
}

Rows MlaBlock::record(LayerRecorder& layers, MlaForward& forward, const MlaLayerView& cache,
                      const Rows& x, float norm_eps, bool is_read) const {
  const Rows out = layers.rows(x.tokens, config_.o_size());
  const Projected rows = project(layers, x, norm_eps);
  // 4, 5: RoPE on the rope parts; latent, rope key and index key into the cache.
  rotate_and_write(layers, forward, cache, rows);
  if (!is_read) return out;
  // 6: scores of all keys and the choice of the best; shared layers keep the last one.
  if (rows.index_k.width > 0) {
    Arena& arena = layers.scope().arena;
    const int64_t mark = arena.mark();
    const MlaShape& shape = forward.attention.shape();
    const int64_t query_bytes =
        index_query_bytes(shape.index_heads, shape.index_dim, cache.index_dtype);
    forward.attention.record_indexer(
        layers.scope().program,
        {.q = rows.index_q.values,
         .q_stride = rows.index_q.width,
         .weights = rows.index_weights.values,
         .weights_stride = rows.index_weights.width,
         .packed_q = arena.allocate_bytes(layers.scope().batch.num_tokens * query_bytes),
         .cache = cache},
        forward.selection);
    arena.release(mark);
  }
  for (const MlaRound& round : forward.attention.rounds()) {
    attend(layers, forward, cache, round, rows, out);
  }
  return out;
}

void dump_topk(LayerRecorder& layers, const MlaForward& forward, int64_t layer) {
  const ForwardScope& scope = layers.scope();
  if (scope.topk_dump == nullptr || forward.attention.shape().topk == 0) return;
  const int64_t topk = forward.attention.shape().topk;
  const int64_t tokens = scope.batch.num_tokens;
  scope.program.add<TopkStep>("dump", {tokens, kRowRun}, run_topk,
                              {.selection = forward.selection,
                               .stride = forward.attention.selection_stride(),
                               .to = scope.topk_dump + layer * tokens * topk,
                               .topk = topk});
}

}  // namespace millrace
