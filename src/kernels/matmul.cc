#include "kernels/matmul.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/cpu.h"
#include "base/prefetch.h"
#include "kernels/matmul_operand.h"

namespace millrace {
namespace {

// What a block of tiles takes of the second-level cache, where its packed activations and their
// sums stay: of each MiB bytes of activations, and rows. Float blocks by trial on Emerald Rapids (2
// MiB; not tried with 1): 264 rows are 22 tiles of 12, so that a prompt of 512 has two blocks; int8
// blocks on Zen 4 (1 MiB), and a second MiB gains nothing.
struct BlockLimits {
  int64_t bytes_per_mib = 0;
  int64_t rows_per_mib = 0;
  int64_t leaf_rows_per_mib = 0;  // where each row has the sums of a tree
  int64_t most_level2_mib = 0;

  constexpr bool fit(int64_t most_rows) const {
    return leaf_rows_per_mib <= rows_per_mib && most_level2_mib * rows_per_mib <= most_rows;
  }
};
constexpr BlockLimits kFloatBlock{.bytes_per_mib = 576 * 1024,
                                  .rows_per_mib = 132,
                                  .leaf_rows_per_mib = 132,
                                  .most_level2_mib = 2};
constexpr BlockLimits kInt8Block{.bytes_per_mib = 384 * 1024,
                                 .rows_per_mib = 240,
                                 .leaf_rows_per_mib = 120,
                                 .most_level2_mib = 1};
static_assert(kFloatBlock.fit(kMostBlockRows) && kInt8Block.fit(kMostBlockRows));
constexpr int64_t kMinBlockRows = 48;
// Bytes from what is read to what is prefetched, by trial: of one panel, and of each of several
// side by side.
constexpr int64_t kPrefetchDistance = 4096;
constexpr int64_t kPrefetchDistanceSideBySide = 2048;
constexpr int64_t kCacheLine = 64;
// Panels of gate before the same ones of up, where memory is waited for; a multiple of the most
// panels side by side.
constexpr int64_t kPanelsInTurn = 32;
static_assert(kPanelsInTurn % kMaxSidePanels == 0);
// Items: enough for threads that are disturbed, long enough for a straight stream of memory.
constexpr int64_t kItemsPerThread = 8;
constexpr int64_t kMinItemBytes = 48 * 1024;
// Where memory is waited for, streams want to be as long as can be (threads that change places
// every few hundred KiB get a tenth less of the bandwidth), and only the end of the matrix is cut
// finely: at each round the threads take this share of what is left, and no less than so many bytes
// each.
constexpr int64_t kTaperNumerator = 2;
constexpr int64_t kTaperDenominator = 3;
constexpr int64_t kMinTaperedItemBytes = 96 * 1024;

// Levels of sums that a matmul keeps: those of the tree, and the chain that is not yet ended.
int64_t sum_levels(const MatmulArgs& args) { return args.leaves != nullptr ? kTreeLevels + 1 : 2; }

// A block of tiles, and this thread's scratch.
struct Block {
  int64_t num_tiles = 0;
  int64_t tile_rows = 0;  // of a tile; the first tall_tiles have one more
  int64_t tall_tiles = 0;
  int64_t row_begin = 0;
  int64_t rows = 0;
  const std::byte* activations = nullptr;  // the first tile
  int64_t row_size = 0;                    // bytes of a packed row
  float* sums = nullptr;                   // [matrix][panel][level][rows][16]
  float* finished = nullptr;               // outputs of a tile before they are packed, [rows][16]
  float* expanded = nullptr;               // [panel][chunk][16]
};

int64_t panel_sum_floats(const MatmulArgs& args, const Block& block) {
  return sum_levels(args) * block.rows * kPanelWidth;
}

// Bytes of a step of one panel that are prefetched, by trial (bench/kernel_bench, one row). The
// hardware's prefetcher follows a panel by itself up to the end of a page. On Zen 4 a line a step
// tells it early of the next page, and all lines would take the miss buffers from it: a third of
// the bandwidth of a core. On Emerald Rapids it needs all of them: with one, 4-bit weights are read
// at 70% of the bandwidth of a core and 8-bit weights at 87%, with all at 87% and 95%. Other CPUs
// of Intel, not measured, are taken to be like it.
int64_t prefetched_bytes(int64_t step_bytes, bool is_intel) {
  return is_intel ? step_bytes : kCacheLine;
}

int64_t prefetch_distance(const Method& method) {
  return method.panels == 1 ? kPrefetchDistance : kPrefetchDistanceSideBySide;
}

// What the kernel prefetches in pass `pass` over a chunk. One pass: as far ahead as memory is away.
// Several: each its share of the next chunk, so that memory works all the time, unless the loop
// over the tiles does that.
void set_prefetch(const Operand& operand, const Block& block, int64_t pass, TileArgs& tile) {
  const bool streams = !operand.method.loop_prefetches || block.num_tiles == 1;
  if (operand.method.expand || !streams) return;
  const int64_t passes = block.num_tiles;
  const int64_t step = operand.method.step_bytes;
  if (passes == 1) {
    tile.prefetch_distance = prefetch_distance(operand.method);
    tile.prefetch_stride = step;
    static const bool is_intel = is_intel_cpu();
    tile.prefetch_bytes = prefetched_bytes(step, is_intel);
    tile.prefetch_wrap = operand.panel_bytes;
    tile.prefetch_skip = (operand.method.panels - 1) * tile.prefetch_wrap;
    return;
  }
  const int64_t steps = tile.spans[tile.num_spans - 1].end - tile.spans[0].begin;
  const int64_t begin = tile.spans[0].begin - tile.origin;
  tile.prefetch_bytes = (step + passes - 1) / passes;
  tile.prefetch_stride = tile.prefetch_bytes;
  // The kernel counts from the panel's start.
  tile.prefetch_distance =
      (begin + steps) * step + pass * steps * tile.prefetch_bytes - begin * tile.prefetch_bytes;
}

// The chunk that is read after the tiles of a block: the same run of bytes in panels side by side.
struct NextChunk {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;  // of a panel
  int64_t panels = 0;
  int64_t panel_bytes = 0;
};

// Asks for bytes [begin, begin + size) of it, as far as it has them.
void prefetch_part(const NextChunk& next, int64_t begin, int64_t size) {
  const int64_t end = std::min(begin + size, next.bytes);
  for (int64_t p = 0; p < next.panels; ++p) {
    const std::byte* from = next.begin + p * next.panel_bytes;
    for (int64_t at = begin; at < end; at += kCacheLine) prefetch_level2(from + at);
  }
}

struct PanelRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Panels whose sums become outputs; [panel][level][rows][16], as Block::sums.
struct Finishing {
  PanelRange panels;
  const float* sums = nullptr;
  const float* up_sums = nullptr;
};

bool packs_outputs(const MatmulArgs& args) { return args.packed_out.rows > 0; }

// Where the outputs of a block's row go, from a panel's first column on, if they are not packed.
float* outputs_of(const MatmulArgs& args, const Block& block, int64_t row, int64_t panel) {
  const bool adds = args.epilogue == Epilogue::kAddResidual;
  const int64_t stride = adds ? args.residual_stride : args.out_stride;
  return (adds ? args.residual : args.out) + (block.row_begin + row) * stride + panel * kPanelWidth;
}

// Asks for the outputs of `count` rows from `row` on, for writing.
void prefetch_outputs(const MatmulArgs& args, const Block& block, PanelRange panels, int64_t row,
                      int64_t count) {
  if (packs_outputs(args)) {
    const int64_t begin = panels.begin * kPanelWidth;
    const TileColumns columns{block.row_begin + row, count, begin,
                              std::min(panels.end * kPanelWidth, args.weight->n) - begin};
    const std::byte* place = place_of(columns, args.packed_out);
    const int64_t bytes = bytes_of(columns, args.packed_out.kind);
    for (int64_t at = 0; at < bytes; at += kCacheLine) prefetch_to_write(place + at);
    return;
  }
  for (int64_t r = row; r < row + count; ++r) {
    const float* out = outputs_of(args, block, r, panels.begin);
    for (int64_t p = panels.begin; p < panels.end; ++p, out += kPanelWidth) {
      prefetch_to_write(out);
    }
  }
}

// Bias, activation, rounding and store of `count` rows from `row` on; a whole tile, if outputs are
// packed.
void finish_rows(const MatmulArgs& args, const Block& block, const Finishing& what, int64_t row,
                 int64_t count) {
  const int64_t level = args.leaves != nullptr ? kTreeLevels - 1 : 0;
  int64_t sums = (level * block.rows + row) * kPanelWidth;
  for (int64_t panel = what.panels.begin; panel < what.panels.end; ++panel) {
    const int64_t column = panel * kPanelWidth;
    FinishArgs finish;
    finish.epilogue = args.epilogue;
    finish.round = args.round;
    finish.rows = count;
    finish.lanes = static_cast<int>(std::min<int64_t>(kPanelWidth, args.weight->n - column));
    finish.sums = what.sums + sums;
    if (args.bias != nullptr) finish.bias = args.bias + column;
    if (args.epilogue == Epilogue::kSiluMul) {
      finish.up_sums = what.up_sums + sums;
      if (args.up_bias != nullptr) finish.up_bias = args.up_bias + column;
    }
    if (packs_outputs(args)) {
      finish.out = block.finished;
      finish.out_stride = kPanelWidth;
    } else if (args.epilogue == Epilogue::kAddResidual) {
      finish.residual = outputs_of(args, block, row, panel);
      finish.residual_stride = args.residual_stride;
    } else {
      finish.out = outputs_of(args, block, row, panel);
      finish.out_stride = args.out_stride;
    }
    args.kernels->floats->finish(finish);
    if (packs_outputs(args)) {
      pack_columns(*args.kernels, block.finished, kPanelWidth,
                   {block.row_begin + row, count, column, finish.lanes}, args.packed_out);
    }
    sums += panel_sum_floats(args, block);
  }
}

// What comes after some chunk.
struct After {
  NextChunk next;
  const Finishing* finishing = nullptr;  // what ends with the chunk's tiles, or null
};

// Runs `tile.spans` for all tiles of a block against the panels that `tile` points at.
void run_tiles(const MatmulArgs& args, const Operand& operand, const Block& block,
               const After& after, TileArgs& tile) {
  const std::array<float*, kMaxSidePanels> block_sums = std::to_array(tile.sums);
  // Each tile asks for its part of what comes next.
  const int64_t part = round_up(ceil_div(after.next.bytes, block.num_tiles), kCacheLine);
  int64_t row = 0;
  for (int64_t t = 0; t < block.num_tiles; ++t) {
    const int64_t height = block.tile_rows + (t < block.tall_tiles ? 1 : 0);
    tile.activations = block.activations + row * block.row_size;
    for (int p = 0; p < operand.method.panels; ++p) {
      tile.sums[p] = block_sums[static_cast<size_t>(p)] + row * kPanelWidth;
    }
    set_prefetch(operand, block, t, tile);
    prefetch_part(after.next, t * part, part);
    const Finishing* finishing = after.finishing;
    if (finishing != nullptr) prefetch_outputs(args, block, finishing->panels, row, height);
    operand.method.tile[height](tile);
    if (finishing != nullptr) finish_rows(args, block, *finishing, row, height);
    row += height;
  }
  std::copy(block_sums.begin(), block_sums.end(), tile.sums);
}

// Chunk `chunk` of panels [panel, panel + method.panels), to be read after other tiles; nothing
// where the kernel itself asks for it, and past the last panel.
NextChunk next_chunk(const Operand& operand, const Block& block, int64_t panel, int chunk) {
  const bool prefetches = operand.method.loop_prefetches && block.num_tiles > 1;
  if (!prefetches || panel >= operand.num_panels) return {};
  const ChunkBytes bytes = chunk_bytes(operand, chunk);
  return {.begin = operand.weight->panel(panel) + bytes.begin,
          .bytes = bytes.size,
          .panels = std::min<int64_t>(operand.method.panels, operand.num_panels - panel),
          .panel_bytes = operand.panel_bytes};
}

// Multiplies panels [panel, panel + method.panels) with all tiles of a block. Past the last panel
// the last one is computed again, into sums that nobody reads.
void multiply_panels(const MatmulArgs& args, const Operand& operand, const Block& block,
                     int64_t panel, const After& after, float* sums) {
  const PackedMatrix& weight = *operand.weight;
  const Method& method = operand.method;
  const Spans& spans = operand.spans;
  TileArgs tile;
  tile.level_stride = block.rows * kPanelWidth;
  tile.carry_offset = (sum_levels(args) - 1) * tile.level_stride;
  tile.leaf_scale = args.leaves != nullptr ? args.leaf_scale : 1.0f;
  std::array<int64_t, kMaxSidePanels> index{};
  for (int p = 0; p < method.panels; ++p) {
    index[static_cast<size_t>(p)] = std::min(panel + p, operand.num_panels - 1);
    tile.panels[p] = weight.panels + index[static_cast<size_t>(p)] * operand.panel_bytes;
    tile.sums[p] = sums + p * panel_sum_floats(args, block);
  }
  for (int chunk = 0, first = 0, last = 0; chunk < spans.num_chunks; ++chunk, first = last) {
    last = spans.chunk_end[static_cast<size_t>(chunk)];
    const int64_t begin = spans.span[static_cast<size_t>(first)].begin;
    if (method.expand) {
      const int64_t inputs = spans.span[static_cast<size_t>(last - 1)].end - begin;
      tile.origin = static_cast<int32_t>(begin);
      for (int p = 0; p < method.panels; ++p) {
        float* expanded = block.expanded + p * spans.chunk * kPanelWidth;
        args.kernels->floats->expand(weight.kind, weight.quant,
                                     weight.panel(index[static_cast<size_t>(p)]), begin, inputs,
                                     expanded);
        tile.panels[p] = reinterpret_cast<const std::byte*>(expanded);
      }
    }
    tile.spans = spans.span.data() + first;
    tile.num_spans = last - first;
    const bool ends = chunk + 1 == spans.num_chunks;
    run_tiles(args, operand, block,
              ends ? after : After{next_chunk(operand, block, panel, chunk + 1)}, tile);
  }
}

// Everything about a matmul that its items share.
struct Matmul {
  Operand weight;
  Operand up;
  int64_t side = 1;    // panels that are multiplied side by side
  int64_t panels = 1;  // panels that are multiplied before they are finished
};

void prepare(const MatmulArgs& args, int64_t tiles_per_block, Matmul& matmul) {
  prepare_operand(args, *args.weight, tiles_per_block, matmul.weight);
  matmul.side = matmul.weight.method.panels;
  if (packs_outputs(args)) {
    const PackedActivations& out = args.packed_out;
    const PackedActivations& in = args.input;
    MR_CHECK(
        args.epilogue != Epilogue::kAddResidual && packs_columns(out.kind) && out.kind == in.kind &&
            out.tile_rows == in.tile_rows && out.rows == in.rows && out.k == args.weight->n,
        "outputs [{}][{}] of kind {} in tiles of {} are packed as [{}][{}] of kind {} in tiles "
        "of {}",
        in.rows, args.weight->n, static_cast<int>(in.kind), in.tile_rows, out.rows, out.k,
        static_cast<int>(out.kind), out.tile_rows);
  }
  if (args.epilogue == Epilogue::kSiluMul) {
    MR_CHECK(args.up != nullptr && args.up->n == args.weight->n, "gate and up differ");
    prepare_operand(args, *args.up, tiles_per_block, matmul.up);
    matmul.side = std::max<int64_t>(matmul.side, matmul.up.method.panels);
  }
  // One pass over each panel: few changes from the one matrix' stream of memory to the other's.
  const bool in_turn = matmul.up.weight != nullptr && tiles_per_block == 1;
  matmul.panels = in_turn ? kPanelsInTurn : matmul.side;
}

// The block of tiles from `first_tile` on.
Block block_of(const MatmulArgs& args, const MatmulPlan& plan, int64_t first_tile) {
  const PackedActivations& input = args.input;
  const int64_t tiles = input.num_tiles();
  Block block;
  block.num_tiles = std::min(plan.tiles_per_block, tiles - first_tile);
  block.tile_rows = input.rows / tiles;
  block.tall_tiles = std::clamp<int64_t>(input.rows % tiles - first_tile, 0, block.num_tiles);
  block.row_begin = input.tile_begin(first_tile);
  block.rows = block.num_tiles * block.tile_rows + block.tall_tiles;
  block.row_size = packed_row_bytes(input.kind, input.k);
  block.activations = input.data + block.row_begin * block.row_size;
  return block;
}

// Prefetches where a stream of panels starts, up to where the kernel's own prefetching takes over:
// otherwise it would begin with one miss after the other.
void prefetch_start(const Operand& operand, int64_t panel) {
  const PackedMatrix& weight = *operand.weight;
  // Short panels follow each other: the stream goes on in the next ones.
  const bool one = operand.method.panels == 1;
  const int64_t left = (operand.num_panels - panel) * operand.panel_bytes;
  const int64_t distance = prefetch_distance(operand.method);
  const int64_t size = std::min(distance, one ? left : operand.panel_bytes);
  const int64_t end = std::min(panel + operand.method.panels, operand.num_panels);
  for (int64_t p = panel; p < end; ++p) {
    for (int64_t line = 0; line < size; line += kCacheLine) {
      prefetch_level2(weight.panels + p * operand.panel_bytes + line);
    }
  }
}

// multiply_panels for all of a run.
void multiply_run(const MatmulArgs& args, const Operand& operand, const Block& block,
                  PanelRange run, const After& after, float* sums) {
  const int64_t side = operand.method.panels;
  for (int64_t p = run.begin; p < run.end; p += side) {
    const bool ends = p + side >= run.end;
    multiply_panels(args, operand, block, p,
                    ends ? after : After{next_chunk(operand, block, p + side, 0)},
                    sums + (p - run.begin) * panel_sum_floats(args, block));
  }
}

// Multiplies and finishes panels [begin, end) for one block of tiles.
void run_panels(const MatmulArgs& args, const Matmul& matmul, const Block& block, int64_t begin,
                int64_t end) {
  float* const up_sums = block.sums + matmul.panels * panel_sum_floats(args, block);
  const bool waits = block.num_tiles == 1;  // for memory
  const bool two_streams = matmul.up.weight != nullptr;
  // Float tiles are finished one by one, while their sums and outputs are in the cache; int8 tiles
  // are too short for that.
  const bool by_tiles = !waits && matmul.weight.method.finish_by_tiles;
  for (int64_t panel = begin; panel < end; panel += matmul.panels) {
    const PanelRange run{panel, std::min(panel + matmul.panels, end)};
    const Finishing finishing{run, block.sums, up_sums};
    const After last{next_chunk(matmul.weight, block, run.end, 0), by_tiles ? &finishing : nullptr};
    if (waits && (two_streams || panel == begin)) prefetch_start(matmul.weight, panel);
    if (two_streams) {
      const After gate{next_chunk(matmul.up, block, panel, 0)};
      multiply_run(args, matmul.weight, block, run, gate, block.sums);
      if (waits) prefetch_start(matmul.up, panel);
      multiply_run(args, matmul.up, block, run, last, up_sums);
    } else {
      multiply_run(args, matmul.weight, block, run, last, block.sums);
    }
    if (!by_tiles) finish_rows(args, block, finishing, 0, block.rows);
  }
}

// Tiles of a block: blocks are of nearly equal size, and what they read stays in the cache.
int64_t tiles_per_block(const MatmulArgs& args) {
  static const int64_t level2 = level2_cache_bytes();
  const int64_t tiles = args.input.num_tiles();
  const int64_t rows = most_block_rows(args.input, args.leaves != nullptr, level2);
  const int64_t most_tiles = std::max<int64_t>(1, rows / args.input.tile_rows);
  return ceil_div(tiles, ceil_div(tiles, most_tiles));
}

// The panels of item `item` of a block, of `panels`.
PanelRange item_panels(const MatmulPlan& plan, int64_t panels, int64_t item) {
  if (plan.tapered_for == 0) {
    const int64_t begin = item * plan.panels_per_item;
    return {begin, std::min(begin + plan.panels_per_item, panels)};
  }
  const int64_t unit = plan.panels_per_item;
  const int64_t shares = kTaperDenominator * plan.tapered_for;
  int64_t begin = 0;
  for (int64_t first = 0;; first += plan.tapered_for) {
    const int64_t size = ceil_div((panels - begin) * kTaperNumerator, shares * unit) * unit;
    if (item < first + plan.tapered_for) {
      begin += (item - first) * size;
      return {begin, std::min(begin + size, panels)};
    }
    begin += plan.tapered_for * size;
  }
}

}  // namespace

int64_t most_block_rows(const PackedActivations& input, bool leaves, int64_t level2_bytes) {
  constexpr int64_t kMiB = 1 << 20;
  const BlockLimits& limits = input.kind == ActivationKind::kInt8 ? kInt8Block : kFloatBlock;
  // A smaller cache has its share of the bytes; rows are few enough for it.
  const int64_t cache =
      level2_bytes > 0 ? std::min(level2_bytes, limits.most_level2_mib * kMiB) : kMiB;
  const int64_t row_size = std::max<int64_t>(1, packed_row_bytes(input.kind, input.k));
  const int64_t most_rows = std::max<int64_t>(1, cache / kMiB) *
                            (leaves ? limits.leaf_rows_per_mib : limits.rows_per_mib);
  const int64_t rows = cache / 1024 * limits.bytes_per_mib / 1024 / row_size;
  return std::clamp(rows, kMinBlockRows, most_rows);
}

ActivationKind activation_kind_for(const MatmulKernels& kernels, const PackedMatrix& weight,
                                   bool int8) {
  if (weight.is_quantised()) {
    return int8 ? ActivationKind::kInt8 : ActivationKind::kF32;
  }
  const bool bf16 = weight.kind == PackedKind::kBF16 && kernels.bf16 != nullptr;
  return bf16 ? kernels.bf16->activations : ActivationKind::kF32;
}

MatmulPlan plan_matmul_runs(const MatmulArgs& args, int64_t panels_per_item) {
  MatmulPlan plan;
  if (args.input.rows == 0 || args.weight->n == 0) return plan;
  plan.tiles_per_block = tiles_per_block(args);
  plan.panels_per_item = panels_per_item;
  plan.items_per_block = ceil_div(args.weight->num_panels(), panels_per_item);
  plan.num_items = plan.items_per_block * ceil_div(args.input.num_tiles(), plan.tiles_per_block);
  return plan;
}

int64_t least_panels_per_item(const PackedMatrix& weight) {
  return round_up(ceil_div(kMinItemBytes, std::max<int64_t>(1, weight.panel_bytes())),
                  kMaxSidePanels);
}

MatmulPlan plan_matmul(const MatmulArgs& args, int num_threads) {
  MatmulPlan plan;
  if (args.input.rows == 0 || args.weight->n == 0) return plan;
  const int64_t tiles = args.input.num_tiles();
  plan.tiles_per_block = tiles_per_block(args);
  const int64_t blocks = ceil_div(tiles, plan.tiles_per_block);
  Matmul matmul;
  prepare(args, plan.tiles_per_block, matmul);
  const int64_t panels = args.weight->num_panels();
  const int64_t panel_bytes = std::max<int64_t>(1, args.weight->panel_bytes());
  if (tiles == 1 && num_threads > 1) {
    plan.tapered_for = num_threads;
    plan.panels_per_item = round_up(ceil_div(kMinTaperedItemBytes, panel_bytes), matmul.side);
    for (int64_t at = 0; at < panels;
         at = item_panels(plan, panels, plan.items_per_block - 1).end) {
      ++plan.items_per_block;
    }
  } else {
    // Runs of panels: several for each thread, but not too small.
    const int64_t wanted_items =
        num_threads == 1 ? 1 : ceil_div(num_threads * kItemsPerThread, blocks);
    const int64_t least_panels = ceil_div(kMinItemBytes, panel_bytes);
    plan.panels_per_item = round_up(std::max(ceil_div(panels, wanted_items),
                                             std::min(least_panels, ceil_div(panels, num_threads))),
                                    matmul.side);
    plan.items_per_block = ceil_div(panels, plan.panels_per_item);
  }
  plan.num_items = plan.items_per_block * ceil_div(tiles, plan.tiles_per_block);
  const int64_t matrices = matmul.up.weight != nullptr ? 2 : 1;
  const int64_t sums = matrices * matmul.panels * sum_levels(args) * plan.tiles_per_block *
                       args.input.tile_rows * kPanelWidth;
  const int64_t expanded = std::max(expanded_floats(matmul.weight), expanded_floats(matmul.up));
  const int64_t finished = packs_outputs(args) ? args.input.tile_rows * kPanelWidth : 0;
  plan.scratch_bytes = (finished + expanded + sums) * static_cast<int64_t>(sizeof(float));
  return plan;
}

void matmul_run_items(const MatmulArgs& args, const MatmulPlan& plan, int64_t begin, int64_t end,
                      std::byte* scratch) {
  if (begin >= end) return;
  Matmul matmul;
  prepare(args, plan.tiles_per_block, matmul);
  const int64_t panels = args.weight->num_panels();
  const int64_t expanded = std::max(expanded_floats(matmul.weight), expanded_floats(matmul.up));
  while (begin < end) {
    // Items of one block follow each other in memory: one stream.
    const int64_t index = begin / plan.items_per_block;
    const int64_t last = std::min(end, (index + 1) * plan.items_per_block) - 1;
    const PanelRange run = {item_panels(plan, panels, begin % plan.items_per_block).begin,
                            item_panels(plan, panels, last % plan.items_per_block).end};
    Block block = block_of(args, plan, index * plan.tiles_per_block);
    block.finished = reinterpret_cast<float*>(scratch);
    block.expanded =
        block.finished + (packs_outputs(args) ? args.input.tile_rows * kPanelWidth : 0);
    block.sums = block.expanded + expanded;
    run_panels(args, matmul, block, run.begin, run.end);
    begin = last + 1;
  }
}

}  // namespace millrace
