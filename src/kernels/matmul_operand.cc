#include "kernels/matmul_operand.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {
namespace {

// Bytes of a panel that stay in the first-level cache while the tiles of a block pass over them.
constexpr int64_t kChunkBytes = 16 * 1024;
constexpr int64_t kExpandedChunkBytes = 32 * 1024;
// Fewer tiles than this do not pay for expanding f16 or bf16 weights into a buffer first.
constexpr int64_t kMinTilesToExpand = 3;

Int8Layout int8_layout(const QuantLayout& q) {
  const auto is = [&](int bits, int group, int offset, bool wide, bool min) {
    return q == QuantLayout{group, bits, offset, wide, min};
  };
  if (is(8, 32, 128, false, false)) return Int8Layout::kBits8Offset128;
  if (is(4, 32, 8, false, false)) return Int8Layout::kBits4Offset8;
  if (is(4, 32, 0, false, true)) return Int8Layout::kBits4Min;
  if (is(8, 32, 16, false, false)) return Int8Layout::kBits8Offset16;
  if (is(8, 32, 0, false, true)) return Int8Layout::kBits8Min;
  if (is(4, 32, 0, true, true)) return Int8Layout::kBits4WideMin;
  if (is(8, 32, 0, true, true)) return Int8Layout::kBits8WideMin;
  if (is(8, 16, 32, true, false)) return Int8Layout::kBits8Group16Wide;
  if (is(4, 32, 8, true, false)) return Int8Layout::kBits4Offset8Wide;
  MR_CHECK(false, "no int8 kernel for {} bits, group {}, offset {}", q.bits, q.group,
           q.code_offset);
}

// The tile functions over floats, and over bf16 weights as they are, for activations that are
// floats: of the class f32, or of the class bf16 by fma.
struct FloatTiles {
  const TileFunction* f32;
  const TileFunction* bf16;
  int panels;
};

FloatTiles float_tiles(const MatmulArgs& args, const PackedMatrix& weight) {
  if (args.input.kind == ActivationKind::kBF16Wide) {
    MR_CHECK(weight.kind == PackedKind::kBF16, "bf16 activations with weights that are not bf16");
    const Bf16Kernels& kernels = *args.kernels->bf16;
    return {kernels.expanded_tile, kernels.tile, kernels.panels};
  }
  const FloatKernels& kernels = *args.kernels->floats;
  const int panels = args.input.rows == 1 ? kernels.panels_single : kernels.panels;
  return {kernels.f32, kernels.bf16, panels};
}

Method float_method(const MatmulArgs& args, const PackedMatrix& weight, int64_t tiles) {
  const FloatKernels& kernels = *args.kernels->floats;
  const FloatTiles functions = float_tiles(args, weight);
  Method method;
  method.tile = functions.f32;
  method.panels = functions.panels;
  method.step_bytes = kPanelWidth * 4;
  method.expand =
      weight.is_quantised() || (weight.kind != PackedKind::kF32 && tiles >= kMinTilesToExpand);
  if (!method.expand && weight.kind != PackedKind::kF32) {
    method.tile = weight.kind == PackedKind::kF16 ? kernels.f16 : functions.bf16;
    method.step_bytes = kPanelWidth * 2;
    if (weight.kind == PackedKind::kFp8) {
      method.tile = kernels.fp8;
      method.step_bytes = kFp8BlockBytes / kFp8Group;
    }
  }
  if (weight.kind == PackedKind::kBF16) method.leaf_multiple = 2;
  if (weight.kind == PackedKind::kFp8) method.leaf_multiple = kFp8Group;
  // A multiple of every quantisation group.
  method.chunk_steps = kExpandedChunkBytes / (method.step_bytes * method.panels) / 32 * 32;
  return method;
}

Method method_for(const MatmulArgs& args, const PackedMatrix& weight, int64_t tiles) {
  if (args.input.kind == ActivationKind::kF32 || args.input.kind == ActivationKind::kBF16Wide) {
    return float_method(args, weight, tiles);
  }
  Method method;
  if (args.input.kind == ActivationKind::kInt8) {
    MR_CHECK(weight.is_quantised(), "int8 activations with weights that are not quantised");
    method.tile = args.kernels->int8->tile[static_cast<int>(int8_layout(weight.quant))];
    method.loop_prefetches = false;
    method.finish_by_tiles = false;
    method.inputs_per_step = kActivationGroup;
    method.step_bytes = kActivationGroup / weight.quant.group * weight.quant.block_bytes();
  } else {
    MR_CHECK(weight.kind == PackedKind::kBF16, "bf16 activations with weights that are not bf16");
    const Bf16Kernels& kernels = *args.kernels->bf16;
    method.tile = kernels.tile;
    method.panels = kernels.panels;
    method.inputs_per_step = 2;
    method.step_bytes = kPanelWidth * 4;
  }
  method.leaf_multiple = method.inputs_per_step;
  method.chunk_steps = std::max<int64_t>(1, kChunkBytes / (method.step_bytes * method.panels));
  return method;
}

// Appends the spans of the leaf that is [begin, end) in steps.
void cut_leaf(int leaf, int64_t begin, int64_t end, Spans& spans) {
  int64_t at = begin;
  do {
    const int64_t stop = std::min(end, (at / spans.chunk + 1) * spans.chunk);
    const auto index = static_cast<size_t>(spans.count++);
    KSpan& span = spans.span[index];
    span.begin = static_cast<int32_t>(at);
    span.end = static_cast<int32_t>(stop);
    span.starts_leaf = at == begin;
    span.ends_leaf = static_cast<int8_t>(stop == end ? leaf : -1);
    // A span that starts at a multiple of the chunk is in the chunk that starts there.
    const bool new_chunk =
        index == 0 || (at % spans.chunk == 0 && spans.span[index - 1].begin < at);
    if (new_chunk) ++spans.num_chunks;
    spans.chunk_end[static_cast<size_t>(spans.num_chunks - 1)] = static_cast<uint8_t>(index + 1);
    at = stop;
  } while (at < end);
}

// Steps of a chunk where `steps` are cut into as few chunks of `most` at most as can be, of nearly
// equal size; a multiple of `unit`, as `most` is.
int64_t even_chunk(int64_t steps, int64_t most, int64_t unit) {
  if (most <= unit || steps <= 0) return std::max<int64_t>(most, 1);
  return std::min(most, round_up(ceil_div(steps, ceil_div(steps, most)), unit));
}

void cut_spans(const MatmulArgs& args, const Method& method, bool chunked, Spans& spans) {
  const int64_t unit = method.inputs_per_step;
  const int64_t k = args.input.k;
  // Beyond the end without chunks, so that there is one.
  spans.chunk = k + 1;
  if (chunked) {
    // Of inputs, a multiple of every group of quantised weights.
    const int64_t group = std::max<int64_t>(1, 32 / unit);
    spans.chunk = even_chunk(k / unit, method.chunk_steps, group);
  }
  while (spans.chunk * (kMaxSpans - kNumLeaves) < k / unit) spans.chunk *= 2;
  if (args.leaves == nullptr) return cut_leaf(0, 0, k / unit, spans);
  const LeafCuts& leaves = *args.leaves;
  MR_CHECK(leaves.size() == k, "leaves of {} inputs in a matmul of {}", leaves.size(), k);
  for (int leaf = 0; leaf < kNumLeaves; ++leaf) {
    MR_CHECK(leaves.begin(leaf) % method.leaf_multiple == 0,
             "leaf at input {}, not a multiple of {}", leaves.begin(leaf), method.leaf_multiple);
    cut_leaf(leaf, leaves.begin(leaf) / unit, leaves.end(leaf) / unit, spans);
  }
}

}  // namespace

ChunkBytes chunk_bytes(const Operand& operand, int chunk) {
  const Spans& spans = operand.spans;
  const int first = chunk == 0 ? 0 : spans.chunk_end[static_cast<size_t>(chunk - 1)];
  const int last = spans.chunk_end[static_cast<size_t>(chunk)] - 1;
  const int64_t steps = operand.weight->k / operand.method.inputs_per_step;
  if (steps == 0) return {};
  const auto place = [&](int64_t step) { return step * operand.panel_bytes / steps; };
  const int64_t begin = place(spans.span[static_cast<size_t>(first)].begin);
  return {begin, place(spans.span[static_cast<size_t>(last)].end) - begin};
}

void prepare_operand(const MatmulArgs& args, const PackedMatrix& weight, int64_t tiles_per_block,
                     Operand& operand) {
  MR_CHECK(weight.k == args.input.k, "a matrix of {} inputs times {} activations", weight.k,
           args.input.k);
  operand.weight = &weight;
  operand.num_panels = weight.num_panels();
  operand.panel_bytes = weight.panel_bytes();
  operand.method = method_for(args, weight, tiles_per_block);
  // One pass needs no chunks: the panel streams from memory once.
  cut_spans(args, operand.method, tiles_per_block > 1 || operand.method.expand, operand.spans);
}

int64_t expanded_floats(const Operand& operand) {
  if (!operand.method.expand) return 0;
  return operand.spans.chunk * operand.method.panels * kPanelWidth;
}

}  // namespace millrace
