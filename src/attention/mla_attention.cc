#include "attention/mla_attention.h"

#include <algorithm>

namespace millrace {
namespace {

// A run of items or merges of one of the kernels: function, arguments, the first of them.
template <typename Args, typename Item>
struct ItemsStep {
  Args args;
  void (*run)(const Args& args, const Item& item, std::byte* scratch);
  const Item* items;
};

template <typename Args, typename Item>
void run_items(const ItemsStep<Args, Item>& step, int64_t begin, int64_t end, std::byte* scratch) {
  for (int64_t i = begin; i < end; ++i) step.run(step.args, step.items[i], scratch);
}

template <typename Args, typename Item>
void add_items(Program& program, const char* label, std::span<const Item> items,
               const ItemsStep<Args, Item>& step, const StepCost& cost = {}) {
  if (items.empty()) return;
  program.add<ItemsStep<Args, Item>>(label, {static_cast<int64_t>(items.size()), 1},
                                     run_items<Args, Item>, step, cost);
}

// In place of IndexerKernels::run_item, for tests (MlaShape::recent_keys).
void select_recent(const IndexerArgs& args, const IndexItem& item, std::byte*) {
  const AttentionSequence& sequence = args.sequences[item.sequence];
  for (int32_t i = item.token_begin; i < item.token_begin + item.num_tokens; ++i) {
    const auto end = static_cast<int32_t>(sequence.num_computed + i + 1);
    const int32_t begin = std::max(0, end - args.topk);
    const int64_t token = sequence.query_start + i;
    int32_t* to = args.positions + token * args.selection_stride;
    int32_t* leaf_begin = args.leaf_begin + 17 * token;
    int32_t count = 0;
    for (int32_t leaf = 0; leaf < 16; ++leaf) {
      leaf_begin[leaf] = count;
      for (int32_t p = begin; p < end; ++p) {
        if (p / 16 % 16 == leaf) to[count++] = p;
      }
    }
    leaf_begin[16] = count;
  }
}

Result<> grow(Buffer& buffer, int64_t bytes) {
  if (bytes <= static_cast<int64_t>(buffer.size())) return {};
  MR_ASSIGN(buffer, Buffer::allocate(static_cast<size_t>(bytes)));
  return {};
}

}  // namespace

Result<> MlaAttention::plan(const ForwardBatch& batch, int num_threads) {
  batch_ = &batch;
  const MlaPlanInput input = {
      .sequences = batch.sequences, .shape = shape_, .num_threads = num_threads};
  plan_mla_attention(input, plan_);
  MR_TRY(grow(workspace_, plan_.workspace_bytes));
  if (shape_.topk == 0) return {};
  plan_indexer(input, index_plan_);
  return grow(index_workspace_, index_plan_.workspace_bytes);
}

void MlaAttention::record_indexer(Program& program, const IndexOperands& operands,
                                  const SelectionRows& out) {
  const IndexerKernels& kernels = indexer_kernels(isa_);
  const IndexerArgs args = {.q = operands.q,
                            .q_stride = operands.q_stride,
                            .weights = operands.weights,
                            .weights_stride = operands.weights_stride,
                            .num_heads = shape_.index_heads,
                            .topk = shape_.topk,
                            .cache = operands.cache,
                            .queries = operands.packed_q,
                            .sequences = batch_->sequences.data(),
                            .positions = out.positions,
                            .selection_stride = index_plan_.selection_stride,
                            .leaf_begin = out.leaf_begin,
                            .workspace = index_workspace_.data()};
  const int64_t key_bytes = int64_t{shape_.index_dim} * size_of(operands.cache.index_dtype);
  const auto run_item = shape_.recent_keys ? select_recent : kernels.run_item;
  add_items<IndexerArgs, IndexPack>(program, "pack index queries", index_plan_.packs,
                                    {args, kernels.pack, index_plan_.packs.data()});
  program.need_scratch(index_plan_.scratch_bytes);
  add_items<IndexerArgs, IndexItem>(
      program, "indexer", index_plan_.items, {args, run_item, index_plan_.items.data()},
      {.multiply_adds = index_plan_.multiply_adds,
       .cache_bytes = static_cast<double>(index_plan_.keys_read * key_bytes)});
  add_items<IndexerArgs, IndexMerge>(program, "indexer merge", index_plan_.merges,
                                     {args, kernels.merge, index_plan_.merges.data()});
}

void MlaAttention::record(Program& program, const MlaRound& round, const MlaOperands& operands) {
  const MlaKernels& kernels = mla_kernels(isa_, bf16_class_, operands.cache);
  const int64_t q_stride = int64_t{shape_.num_heads} * (shape_.latent + shape_.rope);
  const int64_t out_stride = int64_t{shape_.num_heads} * shape_.latent;
  // Items count rows from the batch's first token.
  const auto first_row = [&round](auto* rows, int64_t stride) {
    return rows == nullptr ? nullptr : rows - round.token_begin * stride;
  };
  const MlaArgs args = {.q = first_row(operands.q, q_stride),
                        .q_stride = q_stride,
                        .out = first_row(operands.out, out_stride),
                        .out_stride = out_stride,
                        .num_heads = shape_.num_heads,
                        .scale = shape_.scale,
                        .cache = operands.cache,
                        .sequences = batch_->sequences.data(),
                        .selection = {.positions = operands.selection.positions,
                                      .stride = index_plan_.selection_stride,
                                      .leaf_begin = operands.selection.leaf_begin},
                        .workspace = workspace_.as<float>()};
  const auto items = std::span(plan_.items)
                         .subspan(static_cast<size_t>(round.item_begin),
                                  static_cast<size_t>(round.item_end - round.item_begin));
  const auto merges = std::span(plan_.merges)
                          .subspan(static_cast<size_t>(round.merge_begin),
                                   static_cast<size_t>(round.merge_end - round.merge_begin));
  program.need_scratch(plan_.scratch_bytes);
  add_items<MlaArgs, MlaItem>(
      program, "attention", items, {args, kernels.run_item, items.data()},
      {.multiply_adds = round.multiply_adds,
       .cache_bytes = static_cast<double>(round.rows_read * operands.cache.row_bytes())});
  add_items<MlaArgs, MlaMerge>(program, "attention merge", merges,
                               {args, kernels.merge, merges.data()});
}

}  // namespace millrace
