// Matrix multiplication: packed activations times a packed weight matrix, with bias, rounding and
// the step that follows it fused (docs/numerics.md, "Matmul").
//
// A matmul is cut into items that any threads may run in any order; the bits do not depend on who
// runs what, on the number of rows, nor on the instruction set:
//
//   MatmulPlan plan = plan_matmul(args, num_threads);
//   matmul_run_items(args, plan, begin, end, scratch);   // on any thread, until all items are done
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/activations.h"
#include "kernels/matmul_kernels.h"
#include "tensor/dtype.h"
#include "tensor/leaves.h"
#include "tensor/packed_matrix.h"

namespace millrace {

// out[row][o] = input[row] . weight[o]. Views and pointers must outlive the run. The combinations:
// any weight with kF32 activations (exact mode); quantised weights with kInt8; kBF16 weights with
// the kind of kernels->bf16 (numeric class bf16).
struct MatmulArgs {
  const MatmulKernels* kernels = nullptr;
  const PackedMatrix* weight = nullptr;  // kSiluMul: the gate's
  const PackedMatrix* up = nullptr;      // kSiluMul only; same n and k, any format
  PackedActivations input;
  // Null: column-parallel, one chain over K. Else row-parallel: a chain per leaf, then the tree.
  // The cuts are multiples of 32 for kInt8, of 2 for bf16 weights, of 32 for fp8.
  const LeafCuts* leaves = nullptr;
  float leaf_scale = 1.0f;         // with leaves: multiplies each leaf's sum before the tree
  const float* bias = nullptr;     // [n], added after the tree
  const float* up_bias = nullptr;  // [n], kSiluMul
  DType round = DType::kF32;       // the one rounding of the result
  // kStore:        out = round(sum + bias)
  // kAddResidual:  residual = round(residual + round(sum + bias)); out is not used
  // kSiluMul:      out = round(silu(gate sum + bias) * (up sum + up_bias))
  Epilogue epilogue = Epilogue::kStore;
  float* out = nullptr;  // [rows][out_stride], n columns are written
  int64_t out_stride = 0;
  // If it has rows, in place of out: the outputs packed for the matmul that reads them. Same rows
  // and kind as the input, n columns; packs_columns(kind); not with kAddResidual.
  PackedActivations packed_out;
  float* residual = nullptr;  // [rows][residual_stride], kAddResidual
  int64_t residual_stride = 0;
};

// How a matmul is cut into items: runs of panels times blocks of tiles, the blocks outermost.
struct MatmulPlan {
  int64_t num_items = 0;
  int64_t panels_per_item = 0;  // the least, if tapered
  int64_t tapered_for = 0;      // threads, if the first items are long ones and the last short ones
  int64_t tiles_per_block = 0;
  int64_t items_per_block = 0;
  int64_t scratch_bytes = 0;  // for each thread that runs items, 64-byte aligned
};

// A cut that keeps `num_threads` threads busy to the end and gives each long runs of memory.
// Depends on shapes and on the machine, not on data; args.out, residual, input.data and
// packed_out.data may still be null.
MatmulPlan plan_matmul(const MatmulArgs& args, int num_threads);

// Rows up to which a matmul's scratch can grow: more are cut into blocks.
inline constexpr int64_t kMostBlockRows = 264;

// Rows of a block at most, on a CPU with so many bytes of second-level cache (0: unknown). Blocks
// of int8 activations are smaller with `leaves`: there are more sums to a row.
int64_t most_block_rows(const PackedActivations& input, bool leaves, int64_t level2_bytes);

// A plan whose items are runs of `panels_per_item` panels, a multiple of kMaxSidePanels; quick to
// make, for many matmuls in one step. Its scratch_bytes are 0: they are the caller's to find out.
MatmulPlan plan_matmul_runs(const MatmulArgs& args, int64_t panels_per_item);

// Panels of the smallest item that is worth claiming by itself, a multiple of kMaxSidePanels.
int64_t least_panels_per_item(const PackedMatrix& weight);

// Computes items [begin, end) of the plan on this thread.
void matmul_run_items(const MatmulArgs& args, const MatmulPlan& plan, int64_t begin, int64_t end,
                      std::byte* scratch);

// The kind of activations to use with a matrix: int8 for quantised weights if `int8`; for bf16
// weights that of kernels.bf16, where there are any; else f32.
ActivationKind activation_kind_for(const MatmulKernels& kernels, const PackedMatrix& weight,
                                   bool int8);

}  // namespace millrace
