// How a matmul reads one of its matrices: by which kernel, panel by panel, in which spans and
// chunks of K. For matmul.cc.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/matmul.h"

namespace millrace {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t unit) { return ceil_div(a, unit) * unit; }

// How one matrix is multiplied with the activations.
struct Method {
  const TileFunction* tile = nullptr;  // by rows
  int panels = 1;                      // side by side
  int64_t inputs_per_step = 1;
  int64_t step_bytes = 0;  // of a panel as the kernel reads it
  bool expand = false;     // the kernel reads an expanded copy
  // Where a block has several tiles: the loop over them asks for the next chunk's memory (and not
  // the kernel), and each is finished by itself.
  bool loop_prefetches = true;
  bool finish_by_tiles = true;
  int64_t chunk_steps = 0;
  int64_t leaf_multiple = 1;  // leaves are cut at multiples of this many inputs
};

inline constexpr int kMaxSpans = 112;

// The spans of K in steps, cut at leaves and, if the panels are passed over more than once, at
// multiples of `chunk`. Left uninitialised past `count`: items are short.
struct Spans {
  std::array<KSpan, kMaxSpans> span;
  std::array<uint8_t, kMaxSpans> chunk_end;  // for each chunk, the span after its last
  int count = 0;
  int num_chunks = 0;
  int64_t chunk = 0;
};

// One of the matrices of a matmul with all that is known before its panels are multiplied.
struct Operand {
  const PackedMatrix* weight = nullptr;
  int64_t num_panels = 0;
  int64_t panel_bytes = 0;
  Method method;
  Spans spans;
};

// Bytes [begin, begin + size) of a panel.
struct ChunkBytes {
  int64_t begin = 0;
  int64_t size = 0;
};

// What chunk `chunk` takes of each panel, as it lies in memory.
ChunkBytes chunk_bytes(const Operand& operand, int chunk);

// Fills `operand` (whose spans are left as they are past their count) for blocks of so many tiles.
void prepare_operand(const MatmulArgs& args, const PackedMatrix& weight, int64_t tiles_per_block,
                     Operand& operand);

// Floats of the buffer that an operand's chunks are expanded into; 0 if they are not.
int64_t expanded_floats(const Operand& operand);

}  // namespace millrace
