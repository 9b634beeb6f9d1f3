// Many matmuls of one shape in one step: experts with the rows that were routed to them, or heads
// with a matrix each. The rows of all groups lie one after another in packed form; each group is a
// matmul of its own (matmul.h), with the same bits as if it were alone.
//
// How many rows a group has may be known only when the step runs (experts): the number of items is
// fixed when it is recorded, and each takes an equal share of the work there turns out to be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul.h"

namespace millrace {

// The groups that have rows, written by group_rows() in the same run, before the matmuls.
struct RowGroups {
  int32_t num_active = 0;
  int32_t* group = nullptr;      // [groups]: ids of the active ones, ascending
  int32_t* row_begin = nullptr;  // [groups + 1]: rows of active group i begin there
};

struct GroupedMatmulArgs {
  // What the groups share: kernels, leaves, leaf_scale, round, epilogue, out (not packed_out),
  // out_stride. `weight` and `up` are set for each group; input.data is where the first group's
  // rows are, and input.rows is the number of each group's rows, or of all routed ones.
  MatmulArgs shared;
  const PackedMatrix* weights = nullptr;  // [num_groups], of one shape; formats may differ
  const PackedMatrix* ups = nullptr;      // likewise with kSiluMul
  int num_groups = 0;
  // Groups of routed rows: the output's rows are in the order of the input's. Null: each group has
  // shared.input.rows rows, and writes columns from group * out_group_columns on.
  const RowGroups* routed = nullptr;
  int64_t out_group_columns = 0;
  int num_threads = 1;
};

// Items of the step.
int64_t grouped_matmul_items(const GroupedMatmulArgs& args);

// Scratch bytes per thread, whatever the number of rows. Takes a while (hundreds of plans for each
// change of format): to be called once per shape, not per step.
int64_t grouped_matmul_scratch_bytes(const GroupedMatmulArgs& args);

// Computes the shares [begin, end) of the work, of grouped_matmul_items().
void grouped_matmul_run_items(const GroupedMatmulArgs& args, int64_t begin, int64_t end,
                              std::byte* scratch);

// The packed rows of one group: active group `index` if routed, else group `index`.
PackedActivations group_input(const GroupedMatmulArgs& args, int64_t index);

// Sorts assignments of rows to groups: assignment a (of num_assignments) goes to group ids[a].
// Fills `groups`, and for each assignment its row among the sorted ones (stable), and the inverse.
struct GroupRowsArgs {
  const int32_t* ids = nullptr;  // [num_assignments], below num_groups
  int64_t num_assignments = 0;
  int num_groups = 0;
  RowGroups* groups = nullptr;
  int32_t* row_of = nullptr;         // [num_assignments]: sorted row
  int32_t* assignment_of = nullptr;  // [num_assignments], by sorted row
  int32_t* counts = nullptr;         // [num_groups], scratch
};
void group_rows(const GroupRowsArgs& args);

}  // namespace millrace
