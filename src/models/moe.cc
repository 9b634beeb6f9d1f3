#include "models/moe.h"

#include <algorithm>
#include <array>

#include "config/leaf_axes.h"
#include "kernels/router.h"
#include "kernels/row_kernels.h"

namespace millrace {
namespace {

// Most bytes of expert outputs that a round keeps.
constexpr int64_t kRoundBytes = int64_t{64} << 20;
constexpr int64_t kLeastRoundTokens = 32;
// Columns of a token's sum that one thread takes at a time.
constexpr int64_t kCombineColumns = 1024;
// Routed rows whose tiles one thread packs at a time.
constexpr int64_t kPackRun = 4;

// The kind that all matrices can be multiplied with: theirs, or the exact one where they differ.
ActivationKind common_kind(const Execution& execution, std::span<const PackedMatrix> a,
                           std::span<const PackedMatrix> b) {
  const auto kind_of = [&](const PackedMatrix& matrix) {
    return activation_kind_for(kernels_of(execution), matrix, execution.int8_activations);
  };
  const ActivationKind kind = kind_of(a.front());
  const auto differs = [&](const PackedMatrix& matrix) { return kind_of(matrix) != kind; };
  const bool mixed = std::ranges::any_of(a, differs) || std::ranges::any_of(b, differs);
  return mixed ? ActivationKind::kF32 : kind;
}

struct GroupStep {
  GroupRowsArgs args;
  int32_t* group;  // storage of args.groups
  int32_t* row_begin;
};

void run_group(const GroupStep& step, int64_t, int64_t, std::byte*) {
  *step.args.groups = {.num_active = 0, .group = step.group, .row_begin = step.row_begin};
  group_rows(step.args);
}

// Packs rows of x, sorted by expert, for a grouped matmul. An item packs the tiles that begin among
// its rows: packed rows of a tile lie interleaved, and two threads must not write to one cache
// line.
struct PackRoutedStep {
  GroupedMatmulArgs matmul;  // whose input is written
  const float* x;
  int64_t width;
  const int32_t* assignment_of;  // null: row r is row r
  int experts_per_token;
};

void run_pack_routed(const PackRoutedStep& step, int64_t begin, int64_t end, std::byte*) {
  const RowGroups& groups = *step.matmul.routed;
  const int32_t* starts = groups.row_begin;
  int64_t group = std::upper_bound(starts, starts + groups.num_active + 1, begin) - starts - 1;
  for (; group < groups.num_active && starts[group] < end; ++group) {
    const PackedActivations packed = group_input(step.matmul, group);
    for (int64_t tile = 0; tile < packed.num_tiles(); ++tile) {
      const int64_t first = packed.tile_begin(tile);
      if (starts[group] + first < begin || starts[group] + first >= end) continue;
      std::array<const float*, kMaxTileRows> rows;
      size_t count = 0;
      for (int64_t row = first; row < packed.tile_begin(tile + 1); ++row) {
        const int64_t sorted = starts[group] + row;
        const int64_t source = step.assignment_of != nullptr
                                   ? step.assignment_of[sorted] / step.experts_per_token
                                   : sorted;
        rows[count++] = step.x + source * step.width;
      }
      pack_rows(*step.matmul.shared.kernels, {rows.data(), count}, first, packed);
    }
  }
}

struct PackRouted {
  const GroupedMatmulArgs& matmul;
  Rows x;
  const int32_t* assignment_of;
  int64_t rows;
  int experts_per_token;
};

void pack_routed(LayerRecorder& layers, const PackRouted& pack) {
  layers.scope().program.add<PackRoutedStep>("pack by expert", {pack.rows, kPackRun},
                                             run_pack_routed,
                                             {.matmul = pack.matmul,
                                              .x = pack.x.values,
                                              .width = pack.x.width,
                                              .assignment_of = pack.assignment_of,
                                              .experts_per_token = pack.experts_per_token});
}

struct CombineStep {
  ExpertCombineArgs args;
  ExpertCombineFunction run;
  int64_t pieces;  // of a token
};

void run_combine(const CombineStep& step, int64_t begin, int64_t end, std::byte*) {
  for (int64_t item = begin; item < end; ++item) {
    const int64_t column = item % step.pieces * kCombineColumns;
    step.run(step.args, item / step.pieces, column,
             std::min(column + kCombineColumns, step.args.n));
  }
}

}  // namespace

MoeBlock::MoeBlock(const MoeWeights& weights, const MoeShape& shape, const Execution& execution)
    : weights_(weights), shape_(shape), execution_(execution) {
  gate_kind_ = common_kind(execution, weights.gate, weights.up);
  down_kind_ = common_kind(execution, weights.down, {});
  scratch_bytes_ = std::max(grouped_matmul_scratch_bytes(gate_up(gate_kind_)),
                            grouped_matmul_scratch_bytes(down(down_kind_)));
}

GroupedMatmulArgs MoeBlock::gate_up(ActivationKind kind) const {
  const MatmulKernels& kernels = kernels_of(execution_);
  GroupedMatmulArgs args;
  args.shared.kernels = &kernels;
  args.shared.input = packed_activations(kernels, kind, 0, weights_.gate.front().k, nullptr);
  args.shared.epilogue = Epilogue::kSiluMul;
  args.shared.round = execution_.dtype;
  args.weights = weights_.gate.data();
  args.ups = weights_.up.data();
  args.num_groups = shape_.config->num_experts;
  args.num_threads = execution_.num_threads;
  return args;
}

GroupedMatmulArgs MoeBlock::down(ActivationKind kind) const {
  const MatmulKernels& kernels = kernels_of(execution_);
  GroupedMatmulArgs args;
  args.shared.kernels = &kernels;
  args.shared.input = packed_activations(kernels, kind, 0, weights_.down.front().k, nullptr);
  args.shared.leaves = &shape_.expert_leaves;
  args.weights = weights_.down.data();
  args.num_groups = shape_.config->num_experts;
  args.num_threads = execution_.num_threads;
  return args;
}

void MoeBlock::record(LayerRecorder& layers, const LayerRecorder::Norm& norm, const Rows& x) const {
  const int64_t row_bytes = shape_.config->experts_per_token *
                            (x.width + shape_.config->intermediate_size) * int64_t{sizeof(float)};
  const int64_t most = std::max(kLeastRoundTokens, kRoundBytes / row_bytes);
  const int64_t rounds = (x.count() + most - 1) / most;
  Arena& arena = layers.scope().arena;
  for (int64_t r = 0; r < rounds; ++r) {
    const int64_t mark = arena.mark();
    const int64_t begin = x.count() * r / rounds;
    record_round(layers, norm, x.slice(begin, x.count() * (r + 1) / rounds));
    arena.release(mark);
  }
}

void MoeBlock::record_round(LayerRecorder& layers, const LayerRecorder::Norm& norm,
                            const Rows& x) const {
  const bool has_shared = weights_.shared.gate.matrix.n > 0;
  ActivationKinds kinds = layers.kinds({&weights_.router});
  if (has_shared) kinds.add(layers.gated_kind(weights_.shared.gate, weights_.shared.up));
  const Rows h = layers.rows(x.tokens, x.width);
  const PackedRows packed = layers.norm_and_keep(x, norm, kinds, h);

  const Routing routing = record_routing(layers, packed);
  const Rows out = record_experts(layers, h, routing);
  Rows shared;
  if (has_shared) {
    shared = layers.rows(x.tokens, x.width);
    const MlpWeights& mlp = weights_.shared;
    layers.project_unrounded("shared down", layers.gated(packed, mlp), mlp.down,
                             {shape_.shared_leaves, shape_.leaf_scale}, shared);
  }
  const int64_t pieces = (x.width + kCombineColumns - 1) / kCombineColumns;
  layers.scope().program.add<CombineStep>(
      "sum of experts", {x.count() * pieces, 1}, run_combine,
      {.args = {.expert_out = out.values,
                .experts = routing.experts,
                .weights = routing.weights,
                .assignments = routing.row_of,
                .experts_per_token = shape_.config->experts_per_token,
                .num_experts = shape_.config->num_experts,
                .shared = shared.values,
                .residual = x.values,
                .residual_stride = x.width,
                .n = x.width,
                .dtype = execution_.dtype},
       .run = row_kernels(execution_.isa).expert_combine,
       .pieces = pieces});
}

// Steps: router, choice, sorting by expert.
MoeBlock::Routing MoeBlock::record_routing(LayerRecorder& layers, const PackedRows& x) const {
  const MoeConfig& config = *shape_.config;
  Program& program = layers.scope().program;
  Arena& arena = layers.scope().arena;
  const Rows logits = layers.rows(x.tokens(), config.num_experts);
  const LayerRecorder::Projection router[] = {
      {.linear = &weights_.router, .out = logits, .round = false}};
  layers.project("router", x, router);

  Routing routing;
  routing.assignments = logits.count() * config.experts_per_token;
  routing.experts = arena.allocate<int32_t>(routing.assignments);
  routing.weights = arena.allocate<float>(routing.assignments);
  program.need_scratch(router_scratch_bytes(config.num_experts, config.num_groups));
  program.add<RouterArgs>("choose experts", {logits.count(), 1}, route,
                          {.kernels = &row_kernels(execution_.isa),
                           .logits = logits.values,
                           .num_experts = config.num_experts,
                           .softmax = config.score == RouterScore::kSoftmax,
                           .correction_bias = weights_.correction_bias,
                           .num_groups = config.num_groups,
                           .topk_groups = config.topk_groups,
                           .experts_per_token = config.experts_per_token,
                           .normalise = config.norm_topk_prob,
                           .epsilon = config.norm_epsilon,
                           .scale = shape_.routed_scale,
                           .experts = routing.experts,
                           .weights = routing.weights});

  routing.groups = arena.allocate<RowGroups>(1);
  auto* group_ids = arena.allocate<int32_t>(config.num_experts);
  auto* row_begin = arena.allocate<int32_t>(config.num_experts + 1);
  routing.row_of = arena.allocate<int32_t>(routing.assignments);
  routing.assignment_of = arena.allocate<int32_t>(routing.assignments);
  auto* counts = arena.allocate<int32_t>(config.num_experts);
  program.add<GroupStep>("sort by expert", {1, 1}, run_group,
                         {.args = {.ids = routing.experts,
                                   .num_assignments = routing.assignments,
                                   .num_groups = config.num_experts,
                                   .groups = routing.groups,
                                   .row_of = routing.row_of,
                                   .assignment_of = routing.assignment_of,
                                   .counts = counts},
                          .group = group_ids,
                          .row_begin = row_begin});
  return routing;
}

// Steps: packing, gate and up, packing, down.
Rows MoeBlock::record_experts(LayerRecorder& layers, const Rows& h, const Routing& routing) const {
  const MoeConfig& config = *shape_.config;
  Arena& arena = layers.scope().arena;
  // Rows sorted by expert are no run of tokens.
  const TokenLayout by_expert = TokenLayout::replicated(routing.assignments);
  struct Source {
    Rows x;
    const int32_t* assignment_of;  // null: x is sorted already
    int rows_per_token;
  };
  const auto multiply = [&](const char* label, GroupedMatmulArgs args, ActivationKind kind,
                            const Source& from, int64_t width) {
    const Rows out = layers.rows(by_expert, width);
    args.routed = routing.groups;
    args.shared.out = out.values;
    args.shared.out_stride = out.width;
    args.shared.input.rows = routing.assignments;
    args.shared.input.data =
        arena.allocate_bytes(routing.assignments * packed_row_bytes(kind, from.x.width));
    pack_routed(layers,
                {args, from.x, from.assignment_of, routing.assignments, from.rows_per_token});
    layers.grouped_matmul(label, args, scratch_bytes_);
    return out;
  };
  const Rows columns =
      multiply("experts gate_up", gate_up(gate_kind_), gate_kind_,
               {h, routing.assignment_of, config.experts_per_token}, config.intermediate_size);
  return multiply("experts down", down(down_kind_), down_kind_, {columns, nullptr, 1}, h.width);
}

MoeShape moe_shape(const ModelConfig& config, float residual_divisor) {
  if (!config.moe) return {};
  return {.config = &*config.moe,
          .expert_leaves = resolve_ffn_cuts(config.moe->intermediate_size),
          .shared_leaves = resolve_ffn_cuts(config.moe->shared_intermediate_size),
          .routed_scale = config.moe->routed_scaling_factor / residual_divisor,
          .leaf_scale = 1.0f / residual_divisor};
}

std::vector<std::optional<MoeBlock>> moe_blocks(const ModelWeights& weights, const MoeShape& shape,
                                                const Execution& execution) {
  std::vector<std::optional<MoeBlock>> blocks(weights.layers.size());
  for (size_t i = 0; i < blocks.size() && shape.config != nullptr; ++i) {
    if (shape.config->is_sparse[i] == 0) continue;
    blocks[i].emplace(weights.layers[i].moe, shape, execution);
  }
  return blocks;
}

}  // namespace millrace
