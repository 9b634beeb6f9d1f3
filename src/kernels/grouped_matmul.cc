#include "kernels/grouped_matmul.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {
namespace {

// Shares for each thread: the last ones to finish differ little. Few rows wait for memory, and want
// long streams of it.
constexpr int64_t kSharesPerThread = 24;
constexpr int64_t kStreamSharesPerThread = 6;
constexpr int64_t kMostStreamRows = 2;  // of a group, on average

int64_t num_active(const GroupedMatmulArgs& args) {
  return args.routed != nullptr ? args.routed->num_active : args.num_groups;
}

MatmulArgs matmul_of(const GroupedMatmulArgs& args, int64_t index) {
  MatmulArgs matmul = args.shared;
  matmul.input = group_input(args, index);
  int64_t group = index;
  if (args.routed != nullptr) {
    group = args.routed->group[index];
    matmul.out += args.routed->row_begin[index] * matmul.out_stride;
  } else {
    matmul.out += index * args.out_group_columns;
  }
  matmul.weight = args.weights + group;
  if (args.ups != nullptr) matmul.up = args.ups + group;
  return matmul;
}

bool same_format(const PackedMatrix& a, const PackedMatrix& b) {
  return a.kind == b.kind && (!a.is_quantised() || a.quant == b.quant);
}

}  // namespace

PackedActivations group_input(const GroupedMatmulArgs& args, int64_t index) {
  PackedActivations input = args.shared.input;
  const int64_t row_size = packed_row_bytes(input.kind, input.k);
  if (args.routed == nullptr) {
    input.data += index * input.rows * row_size;
    return input;
  }
  const int32_t* begin = args.routed->row_begin + index;
  input.rows = begin[1] - begin[0];
  input.data += begin[0] * row_size;
  return input;
}

int64_t grouped_matmul_items(const GroupedMatmulArgs& args) {
  const int64_t groups = args.routed != nullptr ? args.num_groups : 1;
  const bool streams = args.shared.input.rows <= kMostStreamRows * groups;
  return args.num_threads * (streams ? kStreamSharesPerThread : kSharesPerThread);
}

int64_t grouped_matmul_scratch_bytes(const GroupedMatmulArgs& args) {
  int64_t bytes = 0;
  for (int64_t group = 0; group < args.num_groups; ++group) {
    // Formats may differ from group to group, and with them what has to be expanded.
    const auto is_as_before = [group](const PackedMatrix* matrices) {
      return matrices == nullptr || same_format(matrices[group], matrices[group - 1]);
    };
    if (group > 0 && is_as_before(args.weights) && is_as_before(args.ups)) continue;
    MatmulArgs matmul = args.shared;
    matmul.weight = args.weights + group;
    if (args.ups != nullptr) matmul.up = args.ups + group;
    for (int64_t rows = 1; rows <= kMostBlockRows; ++rows) {
      matmul.input.rows = rows;
      bytes = std::max(bytes, plan_matmul(matmul, 2).scratch_bytes);
    }
  }
  return bytes;
}

void grouped_matmul_run_items(const GroupedMatmulArgs& args, int64_t begin, int64_t end,
                              std::byte* scratch) {
  const int64_t active = num_active(args);
  if (active == 0) return;
  const int64_t run = least_panels_per_item(*args.weights);
  int64_t total = 0;
  for (int64_t i = 0; i < active; ++i) {
    total += plan_matmul_runs(matmul_of(args, i), run).num_items;
  }
  const int64_t shares = grouped_matmul_items(args);
  const int64_t from = total * begin / shares;
  const int64_t to = total * end / shares;
  int64_t at = 0;
  for (int64_t i = 0; i < active && at < to; ++i) {
    const MatmulArgs matmul = matmul_of(args, i);
    const MatmulPlan plan = plan_matmul_runs(matmul, run);
    const int64_t item_begin = std::max<int64_t>(from - at, 0);
    const int64_t item_end = std::min(to - at, plan.num_items);
    if (item_begin < item_end) matmul_run_items(matmul, plan, item_begin, item_end, scratch);
    at += plan.num_items;
  }
}

void group_rows(const GroupRowsArgs& args) {
  std::fill(args.counts, args.counts + args.num_groups, 0);
  for (int64_t a = 0; a < args.num_assignments; ++a) {
    MR_CHECK(args.ids[a] >= 0 && args.ids[a] < args.num_groups, "group {} of {}", args.ids[a],
             args.num_groups);
    ++args.counts[args.ids[a]];
  }
  // Counts become first rows.
  RowGroups& groups = *args.groups;
  groups.num_active = 0;
  int32_t row = 0;
  for (int32_t g = 0; g < args.num_groups; ++g) {
    const int32_t count = args.counts[g];
    if (count > 0) {
      groups.group[groups.num_active] = g;
      groups.row_begin[groups.num_active++] = row;
    }
    args.counts[g] = row;
    row += count;
  }
  groups.row_begin[groups.num_active] = row;
  for (int64_t a = 0; a < args.num_assignments; ++a) {
    const int32_t sorted = args.counts[args.ids[a]]++;
    args.row_of[a] = sorted;
    args.assignment_of[sorted] = static_cast<int32_t>(a);
  }
}

}  // namespace millrace
