#include "models/layers.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/rope.h"
#include "kernels/row_kernels.h"
#include "tensor/packing.h"

namespace millrace {
namespace {

// Rows that one thread takes at a time: few enough to share out a small batch.
constexpr int64_t kRowRun = 4;

struct EmbedStep {
  PackedMatrix embedding;
  const int32_t* token_ids;
  float* out;
  DType dtype;
};

void run_embed(const EmbedStep& step, int64_t begin, int64_t end, std::byte*) {
  for (int64_t row = begin; row < end; ++row) {
    float* out = step.out + row * step.embedding.k;
    unpack_panel_row(step.embedding, step.token_ids[row], out);
    if (step.dtype == DType::kF32) continue;
    for (int64_t i = 0; i < step.embedding.k; ++i) out[i] = round_to(step.dtype, out[i]);
  }
}

// Norm (or none) of rows, then packing, tile by tile, so that the rows are still in the cache. An
// item is a tile of packed rows: they lie interleaved, and threads that write to one cache line
// wait for each other. (Tiles of a second form may be cut otherwise.)
struct NormPackStep {
  RmsNormArgs norm;  // weight null: no norm, x is packed as it is
  float* keep;       // where the normed rows go; null: scratch
  const RowKernels* row_kernels;
  const MatmulKernels* matmul_kernels;
  std::array<PackedActivations, kNumActivationKinds> forms;
  int num_forms;
};

void run_norm_pack(const NormPackStep& step, int64_t begin, int64_t end, std::byte* scratch) {
  const PackedActivations& tiles = step.forms[0];
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t first = tiles.tile_begin(tile);
    const auto count = static_cast<size_t>(tiles.tile_begin(tile + 1) - first);
    std::array<const float*, kMaxTileRows> rows;
    for (size_t i = 0; i < count; ++i) {
      const int64_t row = first + static_cast<int64_t>(i);
      rows[i] = step.norm.x + row * step.norm.x_stride;
      if (step.norm.weight == nullptr) continue;
      RmsNormArgs norm = step.norm;
      norm.x = rows[i];
      norm.out = step.keep != nullptr
                     ? step.keep + row * norm.n
                     : reinterpret_cast<float*>(scratch) + static_cast<int64_t>(i) * norm.n;
      step.row_kernels->rms_norm(norm, 0, 1);
      rows[i] = norm.out;
    }
    for (int i = 0; i < step.num_forms; ++i) {
      pack_rows(*step.matmul_kernels, {rows.data(), count}, first,
                step.forms[static_cast<size_t>(i)]);
    }
  }
}

// Up to four matmuls of the same rows in one step.
constexpr size_t kMostMatmuls = 4;
struct MatmulStep {
  std::array<MatmulArgs, kMostMatmuls> args;
  std::array<MatmulPlan, kMostMatmuls> plans;
  int count;
};

void run_matmuls(const MatmulStep& step, int64_t begin, int64_t end, std::byte* scratch) {
  int64_t first = 0;
  for (size_t i = 0; i < static_cast<size_t>(step.count); ++i) {
    const int64_t items = step.plans[i].num_items;
    const int64_t from = std::max(begin - first, int64_t{0});
    const int64_t to = std::min(end - first, items);
    if (from < to) matmul_run_items(step.args[i], step.plans[i], from, to, scratch);
    first += items;
  }
}

struct RopeTableStep {
  std::span<const float> inv_freq;
  float attention_factor;
  const int32_t* positions;
  float* cos;
  float* sin;
};

void run_rope_table(const RopeTableStep& step, int64_t begin, int64_t end, std::byte*) {
  const auto pairs = static_cast<int64_t>(step.inv_freq.size());
  rope_cos_sin(step.inv_freq, step.attention_factor,
               {step.positions + begin, static_cast<size_t>(end - begin)}, step.cos + begin * pairs,
               step.sin + begin * pairs);
}

struct RotateStep {
  const RowKernels* kernels;
  RmsNormArgs q_norm, k_norm;  // weight null: no norm
  RopeArgs q_rope, k_rope;
  KvWriteArgs write;
};

void run_rotate(const RotateStep& step, int64_t begin, int64_t end, std::byte*) {
  if (step.q_norm.weight != nullptr) step.kernels->rms_norm(step.q_norm, begin, end);
  if (step.k_norm.weight != nullptr) step.kernels->rms_norm(step.k_norm, begin, end);
  step.kernels->rope(step.q_rope, begin, end);
  step.kernels->rope(step.k_rope, begin, end);
  step.kernels->kv_write(step.write, begin, end);
}

struct SelectStep {
  const int32_t* rows;
  const float* from;
  int64_t from_stride;
  float* to;
  int64_t width;
};

void run_select(const SelectStep& step, int64_t begin, int64_t end, std::byte*) {
  for (int64_t i = begin; i < end; ++i) {
    std::copy_n(step.from + step.rows[i] * step.from_stride, step.width, step.to + i * step.width);
  }
}

struct CopyStep {
  const float* from;
  float* to;
  int64_t width;
  float factor;
};

void run_copy(const CopyStep& step, int64_t begin, int64_t end, std::byte*) {
  for (int64_t i = begin * step.width; i < end * step.width; ++i) {
    step.to[i] = step.from[i] * step.factor;
  }
}

struct ScaleStep {
  RoundArgs round;
  RoundFunction run;
};

void run_scale(const ScaleStep& step, int64_t begin, int64_t end, std::byte*) {
  step.run(step.round, begin, end);
}

StepCost cost_of(const MatmulArgs& args) {
  const double matrices = args.up != nullptr ? 2 : 1;
  return {.multiply_adds = matrices * static_cast<double>(args.input.rows) *
                           static_cast<double>(args.weight->n) *
                           static_cast<double>(args.weight->k),
          .weight_bytes = static_cast<double>(args.weight->total_bytes() +
                                              (args.up != nullptr ? args.up->total_bytes() : 0))};
}

// Of routed rows, the matrices that they can reach at most.
StepCost cost_of(const GroupedMatmulArgs& args) {
  const PackedMatrix& weight = *args.weights;
  const double matrices = args.ups != nullptr ? 2 : 1;
  const int64_t rows =
      args.routed != nullptr ? args.shared.input.rows : args.num_groups * args.shared.input.rows;
  const auto active = static_cast<double>(std::min<int64_t>(rows, args.num_groups));
  return {.multiply_adds = matrices * static_cast<double>(rows) * static_cast<double>(weight.n) *
                           static_cast<double>(weight.k),
          .weight_bytes = matrices * active * static_cast<double>(weight.total_bytes())};
}

}  // namespace

const MatmulKernels& kernels_of(const Execution& execution) {
  return matmul_kernels(execution.isa, execution.bf16_class);
}

void ActivationKinds::add(ActivationKind kind) {
  for (const ActivationKind known : list()) {
    if (known == kind) return;
  }
  kinds_[static_cast<size_t>(count_++)] = kind;
}

PackedRows::PackedRows(const Execution& execution, const TokenLayout& tokens, int64_t width,
                       const ActivationKinds& kinds, Arena& arena)
    : tokens_(tokens) {
  const int64_t count = tokens.rows();
  for (const ActivationKind kind : kinds.list()) {
    std::byte* data = arena.allocate_bytes(count * packed_row_bytes(kind, width));
    forms_[static_cast<size_t>(num_forms_++)] =
        packed_activations(kernels_of(execution), kind, count, width, data);
  }
}

const PackedActivations& PackedRows::form(ActivationKind kind) const {
  for (const PackedActivations& form : forms()) {
    if (form.kind == kind) return form;
  }
  MR_CHECK(false, "rows were not packed in this form");
}

ActivationKind LayerRecorder::kind_of(const PackedMatrix& matrix) const {
  return activation_kind_for(kernels_of(execution_), matrix, execution_.int8_activations);
}

ActivationKinds LayerRecorder::kinds(std::initializer_list<const Linear*> consumers) const {
  ActivationKinds kinds;
  for (const Linear* linear : consumers) kinds.add(kind_of(*linear));
  return kinds;
}

ActivationKind LayerRecorder::gated_kind(const Linear& gate, const Linear& up) const {
  return kind_of(gate) == kind_of(up) ? kind_of(gate) : ActivationKind::kF32;
}

Rows LayerRecorder::rows(const TokenLayout& tokens, int64_t width) {
  return {.values = scope_.arena.allocate<float>(tokens.rows() * width),
          .tokens = tokens,
          .width = width};
}

Rows LayerRecorder::embed(const PackedMatrix& embedding) {
  const Rows out = rows(scope_.batch.tokens, embedding.k);
  scope_.program.add<EmbedStep>("embedding", {out.count(), kRowRun}, run_embed,
                                {.embedding = embedding,
                                 .token_ids = scope_.batch.token_ids,
                                 .out = out.values,
                                 .dtype = execution_.dtype});
  return out;
}

TokenLayout LayerRecorder::last_layer_tokens() const {
  return scope_.hidden_dump != nullptr ? scope_.batch.tokens : scope_.batch.logits_tokens;
}

Rows LayerRecorder::select(const Rows& x, const TokenLayout& tokens, int64_t width) {
  if (tokens == x.tokens) return x;
  const ForwardBatch& batch = scope_.batch;
  check_layouts("select", x.tokens, batch.tokens);
  check_layouts("select", tokens, batch.logits_tokens);
  const Rows out = rows(tokens, width);
  if (out.count() == 0) return out;
  scope_.program.add<SelectStep>("select", {out.count(), kRowRun}, run_select,
                                 {.rows = batch.logits_rows,
                                  .from = x.values,
                                  .from_stride = x.width,
                                  .to = out.values,
                                  .width = width});
  return out;
}

PackedRows LayerRecorder::norm(const Rows& x, const Norm& norm, const ActivationKinds& kinds) {
  return norm_pack(x, norm, kinds, nullptr);
}

PackedRows LayerRecorder::norm_and_keep(const Rows& x, const Norm& norm,
                                        const ActivationKinds& kinds, const Rows& keep) {
  return norm_pack(x, norm, kinds, keep.values);
}

PackedRows LayerRecorder::norm_pack(const Rows& x, const Norm& norm, const ActivationKinds& kinds,
                                    float* keep) {
  const PackedRows packed(execution_, x.tokens, x.width, kinds, scope_.arena);
  NormPackStep step = {.norm = {.x = x.values,
                                .x_stride = x.width,
                                .weight = norm.weight,
                                .out_stride = x.width,
                                .n = x.width,
                                .eps = norm.eps,
                                .dtype = execution_.dtype},
                       .keep = keep,
                       .row_kernels = &row_kernels(execution_.isa),
                       .matmul_kernels = &kernels_of(execution_),
                       .forms = {},
                       .num_forms = static_cast<int>(packed.forms().size())};
  std::copy(packed.forms().begin(), packed.forms().end(), step.forms.begin());
  if (norm.weight != nullptr && keep == nullptr) {
    scope_.program.need_scratch(kMaxTileRows * x.width * static_cast<int64_t>(sizeof(float)));
  }
  scope_.program.add<NormPackStep>(norm.weight != nullptr ? "norm" : "pack",
                                   {packed.forms()[0].num_tiles(), 1}, run_norm_pack, step);
  return packed;
}

PackedRows LayerRecorder::pack(const Rows& x, const ActivationKinds& kinds) {
  return norm(x, {.weight = nullptr, .eps = 0}, kinds);
}

MatmulArgs LayerRecorder::matmul_args(const PackedRows& x, const Linear& linear,
                                      ActivationKind kind) const {
  return {.kernels = &kernels_of(execution_),
          .weight = &linear.matrix,
          .input = x.form(kind),
          .bias = linear.bias,
          .round = execution_.dtype};
}

MatmulArgs LayerRecorder::row_parallel_args(const PackedRows& x, const Linear& linear,
                                            const RowParallel& parallel) const {
  MatmulArgs args = matmul_args(x, linear, kind_of(linear));
  args.leaves = &parallel.leaves;
  args.leaf_scale = parallel.leaf_scale;
  return args;
}

void LayerRecorder::matmul_step(const char* label, std::span<const MatmulArgs> matmuls) {
  MR_CHECK(matmuls.size() <= kMostMatmuls);
  MatmulStep step{};
  StepCost cost;
  int64_t num_items = 0;
  step.count = static_cast<int>(matmuls.size());
  for (size_t i = 0; i < matmuls.size(); ++i) {
    step.args[i] = matmuls[i];
    step.plans[i] = plan_matmul(matmuls[i], execution_.num_threads);
    scope_.program.need_scratch(step.plans[i].scratch_bytes);
    num_items += step.plans[i].num_items;
    cost = cost + cost_of(matmuls[i]);
  }
  scope_.program.add<MatmulStep>(label, {num_items, 1}, run_matmuls, step, cost);
}

void LayerRecorder::check_layouts(const char* label, const TokenLayout& a, const TokenLayout& b) {
  MR_CHECK(a == b, "{}: rows of one layout ({}) meet rows of another ({})", label, describe(a),
           describe(b));
}

void LayerRecorder::project(const char* label, const PackedRows& x,
                            std::span<const Projection> projections) {
  std::array<MatmulArgs, kMostMatmuls> matmuls;
  MR_CHECK(projections.size() <= kMostMatmuls);
  for (size_t i = 0; i < projections.size(); ++i) {
    const Projection& projection = projections[i];
    check_layouts(label, x.tokens(), projection.out.tokens);
    MatmulArgs args = matmul_args(x, *projection.linear, kind_of(*projection.linear));
    if (!projection.round) args.round = DType::kF32;
    args.out =
        projection.out.values == nullptr ? nullptr : projection.out.values + projection.column;
    args.out_stride = projection.out.width;
    matmuls[i] = args;
  }
  matmul_step(label, {matmuls.data(), projections.size()});
}

void LayerRecorder::project_residual(const char* label, const PackedRows& x, const Linear& linear,
                                     const RowParallel& parallel, const Rows& residual) {
  check_layouts(label, x.tokens(), residual.tokens);
  MatmulArgs args = row_parallel_args(x, linear, parallel);
  args.epilogue = Epilogue::kAddResidual;
  args.residual = residual.values;
  args.residual_stride = residual.width;
  matmul_step(label, {&args, 1});
}

void LayerRecorder::project_unrounded(const char* label, const PackedRows& x, const Linear& linear,
                                      const RowParallel& parallel, const Rows& out) {
  check_layouts(label, x.tokens(), out.tokens);
  MatmulArgs args = row_parallel_args(x, linear, parallel);
  args.round = DType::kF32;
  args.out = out.values;
  args.out_stride = out.width;
  matmul_step(label, {&args, 1});
}

void LayerRecorder::mlp_residual(const MlpWeights& weights, const Norm& norm_of,
                                 const RowParallel& parallel, const Rows& x) {
  ActivationKinds kinds_of_x;
  kinds_of_x.add(gated_kind(weights.gate, weights.up));
  const PackedRows h = norm(x, norm_of, kinds_of_x);
  project_residual("down_proj", gated(h, weights), weights.down, parallel, x);
}

PackedRows LayerRecorder::gated(const PackedRows& x, const MlpWeights& weights) {
  const ActivationKind kind = gated_kind(weights.gate, weights.up);
  MatmulArgs args = matmul_args(x, weights.gate, kind);
  args.up = &weights.up.matrix;
  args.up_bias = weights.up.bias;
  args.epilogue = Epilogue::kSiluMul;
  const ActivationKinds down_kinds = kinds({&weights.down});
  const int64_t width = weights.gate.matrix.n;
  if (kind == kind_of(weights.down) && packs_columns(kind)) {
    const PackedRows out(execution_, x.tokens(), width, down_kinds, scope_.arena);
    args.packed_out = out.form(kind);
    matmul_step("gate_up", {&args, 1});
    return out;
  }
  const Rows out = rows(x.tokens(), width);
  args.out = out.values;
  args.out_stride = out.width;
  matmul_step("gate_up", {&args, 1});
  return pack(out, down_kinds);
}

LayerRecorder::RopeTable LayerRecorder::rope_table(std::span<const float> inv_freq,
                                                   float attention_factor) {
  const int64_t count = scope_.batch.num_tokens * static_cast<int64_t>(inv_freq.size());
  float* cos = scope_.arena.allocate<float>(count);
  float* sin = scope_.arena.allocate<float>(count);
  scope_.program.add<RopeTableStep>("rope table", {scope_.batch.num_tokens, kRowRun},
                                    run_rope_table,
                                    {.inv_freq = inv_freq,
                                     .attention_factor = attention_factor,
                                     .positions = scope_.batch.positions,
                                     .cos = cos,
                                     .sin = sin});
  return {.cos = cos, .sin = sin};
}

void LayerRecorder::rotate_and_cache(const QkvStep& step, const ModelConfig& config) {
  // Slots, positions and block tables are the batch's.
  check_layouts("rope and cache", step.qkv.tokens, scope_.batch.tokens);
  const int64_t width = step.qkv.width;
  float* q = step.qkv.values;
  float* k = q == nullptr ? nullptr : q + config.q_size();
  float* v = q == nullptr ? nullptr : k + config.kv_size();
  const auto head_norm = [&](float* x, const float* weight, int num_heads) {
    return RmsNormArgs{.x = x,
                       .x_stride = width,
                       .weight = weight,
                       .out = x,
                       .out_stride = width,
                       .num_groups = num_heads,
                       .group_stride = config.head_dim,
                       .n = config.head_dim,
                       .eps = config.rms_norm_eps,
                       .dtype = execution_.dtype};
  };
  const auto rope = [&](float* x, int num_heads) {
    return RopeArgs{.x = x,
                    .row_stride = width,
                    .num_heads = num_heads,
                    .head_dim = config.head_dim,
                    .rotary_dim = config.rope.rotary_dim,
                    .interleaved = config.rope.interleaved,
                    .cos = step.table.cos,
                    .sin = step.table.sin,
                    .dtype = execution_.dtype};
  };
  // Many tokens: by groups of positions, whose keys share cache lines.
  const int64_t count = step.qkv.count();
  const int64_t run = count >= kKvGroup * 2 * execution_.num_threads ? kKvGroup : kRowRun;
  scope_.program.add<RotateStep>("rope and cache", {count, run}, run_rotate,
                                 {.kernels = &row_kernels(execution_.isa),
                                  .q_norm = head_norm(q, step.q_norm, config.num_heads),
                                  .k_norm = head_norm(k, step.k_norm, config.num_kv_heads),
                                  .q_rope = rope(q, config.num_heads),
                                  .k_rope = rope(k, config.num_kv_heads),
                                  .write = {.k = k,
                                            .k_stride = width,
                                            .v = v,
                                            .v_stride = width,
                                            .slot_mapping = scope_.batch.slot_mapping,
                                            .cache = step.cache}});
}

void LayerRecorder::grouped_matmul(const char* label, const GroupedMatmulArgs& args,
                                   int64_t scratch_bytes) {
  scope_.program.need_scratch(scratch_bytes);
  scope_.program.add<GroupedMatmulArgs>(label, {grouped_matmul_items(args), 1},
                                        grouped_matmul_run_items, args, cost_of(args));
}

void LayerRecorder::scale(const Rows& x, float factor) {
  scope_.program.add<ScaleStep>("scale", {x.count(), kRowRun}, run_scale,
                                {.round = {.x = x.values,
                                           .stride = x.width,
                                           .n = x.width,
                                           .factor = factor,
                                           .dtype = execution_.dtype},
                                 .run = row_kernels(execution_.isa).round});
}

const float* LayerRecorder::logits(const Rows& x, const Norm& norm_of, const Linear& head) {
  const ForwardBatch& batch = scope_.batch;
  const Rows out = rows(batch.logits_tokens, head.matrix.n);
  if (batch.num_logits == 0) return out.values;
  const PackedRows h = norm(select(x, batch.logits_tokens), norm_of, kinds({&head}));
  const Projection projection[] = {{.linear = &head, .out = out, .round = false}};
  project("lm_head", h, projection);
  return out.values;
}

void LayerRecorder::dump_hidden(const Rows& x, int64_t layer, float factor) {
  if (scope_.hidden_dump == nullptr) return;
  check_layouts("dump", x.tokens, scope_.batch.tokens);
  float* to = scope_.hidden_dump + layer * x.count() * x.width;
  scope_.program.add<CopyStep>("dump", {x.count(), kRowRun}, run_copy,
                               {.from = x.values, .to = to, .width = x.width, .factor = factor});
}

}  // namespace millrace
