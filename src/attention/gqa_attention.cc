#include "attention/gqa_attention.h"

namespace millrace {
namespace {

struct ItemsStep {
  AttentionArgs args;
  const AttentionKernels* kernels;
  const AttentionItem* items;
};

void run_items(const ItemsStep& step, int64_t begin, int64_t end, std::byte* scratch) {
  for (int64_t i = begin; i < end; ++i) {
    step.kernels->run_item(step.args, step.items[i], scratch);
  }
}

struct MergesStep {
  AttentionArgs args;
  const AttentionKernels* kernels;
  const AttentionMerge* merges;
};

void run_merges(const MergesStep& step, int64_t begin, int64_t end, std::byte* scratch) {
  for (int64_t i = begin; i < end; ++i) {
    step.kernels->merge(step.args, step.merges[i], scratch);
  }
}

}  // namespace

Result<> GqaAttention::plan(std::span<const AttentionSequence> sequences, int num_threads) {
  sequences_ = sequences;
  plan_gqa_attention({.sequences = sequences,
                      .num_heads = shape_.num_heads,
                      .num_kv_heads = shape_.num_kv_heads,
                      .head_dim = shape_.head_dim,
                      .num_threads = num_threads},
                     plan_);
  if (plan_.workspace_bytes > static_cast<int64_t>(workspace_.size())) {
    MR_ASSIGN(workspace_, Buffer::allocate(static_cast<size_t>(plan_.workspace_bytes)));
  }
  return {};
}

void GqaAttention::record(Program& program, const GqaOperands& operands) {
  const AttentionKernels& kernels = attention_kernels(isa_);
  const AttentionArgs args = {.q = operands.q,
                              .q_stride = operands.q_stride,
                              .out = operands.out,
                              .out_stride = operands.out_stride,
                              .num_heads = shape_.num_heads,
                              .scale = shape_.scale,
                              .dtype = shape_.dtype,
                              .cache = operands.cache,
                              .sequences = sequences_.data(),
                              .workspace = workspace_.as<float>()};
  const KvLayout& layout = operands.cache.layout;
  const double row_bytes = static_cast<double>(
      2 * (layout.head_dim * layout.element_size() + (layout.has_scales() ? 4 : 0)));
  const StepCost cost = {
      .multiply_adds = plan_.multiply_adds,
      .cache_bytes = static_cast<double>(plan_.positions_read) * layout.num_kv_heads * row_bytes};
  program.need_scratch(plan_.scratch_bytes);
  program.add<ItemsStep>("attention", {static_cast<int64_t>(plan_.items.size()), 1}, run_items,
                         {args, &kernels, plan_.items.data()}, cost);
  if (!plan_.merges.empty()) {
    program.add<MergesStep>("attention merge", {static_cast<int64_t>(plan_.merges.size()), 1},
                            run_merges, {args, &kernels, plan_.merges.data()});
  }
}

}  // namespace millrace
