// Grouped matmuls give the bytes of each group's own matmul.
#include "kernels/grouped_matmul.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/isa.h"
#include "tensor/packing.h"

namespace millrace {
namespace {

constexpr int kGroups = 5;
constexpr int64_t kOutputs = 70;
constexpr int64_t kInputs = 96;

// Random matrices of one shape.
struct Matrices {
  std::vector<std::vector<std::byte>> panels;
  std::vector<PackedMatrix> packed;

  explicit Matrices(uint32_t seed, int64_t outputs = kOutputs, int64_t inputs = kInputs) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (int g = 0; g < kGroups; ++g) {
      std::vector<float> values(static_cast<size_t>(outputs * inputs));
      for (float& value : values) value = normal(generator);
      PackedMatrix matrix = *packed_layout(WeightFormat::kF32, outputs, inputs);
      panels.emplace_back(static_cast<size_t>(matrix.total_bytes()));
      pack_panels({{.format = WeightFormat::kF32,
                    .data = reinterpret_cast<const std::byte*>(values.data()),
                    .n = outputs}},
                  matrix, 0, matrix.num_panels(), panels.back().data());
      matrix.panels = panels.back().data();
      packed.push_back(matrix);
    }
  }
};

std::vector<float> random_rows(int64_t rows, int64_t width) {
  std::mt19937 generator(9);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(rows * width));
  for (float& value : values) value = normal(generator);
  return values;
}

// One matmul by itself.
std::vector<float> alone(const GroupedMatmulArgs& args, int group, const std::vector<float>& x) {
  const auto rows = static_cast<int64_t>(x.size()) / kInputs;
  MatmulArgs matmul = args.shared;
  std::vector<std::byte> packed(
      static_cast<size_t>(rows * packed_row_bytes(ActivationKind::kF32, kInputs)));
  matmul.input =
      packed_activations(*matmul.kernels, ActivationKind::kF32, rows, kInputs, packed.data());
  pack_activations(*matmul.kernels, x.data(), kInputs, 0, rows, matmul.input);
  matmul.weight = args.weights + group;
  matmul.up = args.ups == nullptr ? nullptr : args.ups + group;
  std::vector<float> out(static_cast<size_t>(rows * kOutputs));
  matmul.out = out.data();
  matmul.out_stride = kOutputs;
  const MatmulPlan plan = plan_matmul(matmul, 1);
  std::vector<std::byte> scratch(static_cast<size_t>(plan.scratch_bytes) + 64);
  matmul_run_items(matmul, plan, 0, plan.num_items, scratch.data());
  return out;
}

class GroupedMatmulTest : public testing::TestWithParam<Isa> {
 protected:
  GroupedMatmulArgs args(const Matrices& weights, int threads) const {
    GroupedMatmulArgs args;
    args.shared.kernels = &matmul_kernels(GetParam(), false);
    args.shared.input =
        packed_activations(*args.shared.kernels, ActivationKind::kF32, 0, kInputs, nullptr);
    args.weights = weights.packed.data();
    args.num_groups = kGroups;
    args.num_threads = threads;
    return args;
  }

  void run(const GroupedMatmulArgs& args) const {
    std::vector<std::byte> scratch(static_cast<size_t>(grouped_matmul_scratch_bytes(args)) + 64);
    const int64_t items = grouped_matmul_items(args);
    // In pieces, the last first: the order must not matter.
    for (int64_t end = items; end > 0; end -= std::min<int64_t>(end, 7)) {
      grouped_matmul_run_items(args, std::max<int64_t>(0, end - 7), end, scratch.data());
    }
  }
};

TEST_P(GroupedMatmulTest, RoutedRows) {
  const Matrices gate(1);
  const Matrices up(2);
  const LeafCuts leaves = LeafCuts::of(3, 32);
  for (const int threads : {1, 3}) {
    for (const bool gated : {false, true}) {
      // Rows go to groups 3, 0, 3, 4, ...: none to 1, and 40 to group 2.
      std::vector<int32_t> ids{3, 0, 3, 4, 3, 0};
      ids.insert(ids.end(), 40, 2);
      const auto rows = static_cast<int64_t>(ids.size());
      const std::vector<float> x = random_rows(rows, kInputs);
      RowGroups groups;
      std::vector<int32_t> group(kGroups), row_begin(kGroups + 1), counts(kGroups);
      std::vector<int32_t> row_of(ids.size()), assignment_of(ids.size());
      groups.group = group.data();
      groups.row_begin = row_begin.data();
      group_rows({.ids = ids.data(),
                  .num_assignments = rows,
                  .num_groups = kGroups,
                  .groups = &groups,
                  .row_of = row_of.data(),
                  .assignment_of = assignment_of.data(),
                  .counts = counts.data()});
      ASSERT_EQ(groups.num_active, 4);

      GroupedMatmulArgs grouped = args(gate, threads);
      if (gated) {
        grouped.ups = up.packed.data();
        grouped.shared.epilogue = Epilogue::kSiluMul;
      } else {
        grouped.shared.leaves = &leaves;
      }
      grouped.routed = &groups;
      std::vector<std::byte> packed(
          static_cast<size_t>(rows * packed_row_bytes(ActivationKind::kF32, kInputs)));
      grouped.shared.input.data = packed.data();
      std::vector<float> out(static_cast<size_t>(rows * kOutputs), -1.0f);
      grouped.shared.out = out.data();
      grouped.shared.out_stride = kOutputs;
      for (int active = 0; active < groups.num_active; ++active) {
        const PackedActivations input = group_input(grouped, active);
        for (int64_t r = 0; r < input.rows; ++r) {
          const int32_t from = assignment_of[static_cast<size_t>(row_begin[active] + r)];
          pack_activations(*grouped.shared.kernels, x.data() + from * kInputs, 0, r, r + 1, input);
        }
      }
      run(grouped);
      for (int g = 0; g < kGroups; ++g) {
        std::vector<float> own;
        std::vector<int64_t> sorted;
        for (size_t a = 0; a < ids.size(); ++a) {
          if (ids[a] != g) continue;
          const float* row = x.data() + static_cast<int64_t>(a) * kInputs;
          own.insert(own.end(), row, row + kInputs);
          sorted.push_back(row_of[a]);
          EXPECT_EQ(assignment_of[static_cast<size_t>(row_of[a])], static_cast<int32_t>(a));
        }
        if (own.empty()) continue;
        const std::vector<float> expected = alone(grouped, g, own);
        for (size_t r = 0; r < sorted.size(); ++r) {
          EXPECT_EQ(std::memcmp(out.data() + sorted[r] * kOutputs,
                                expected.data() + static_cast<int64_t>(r) * kOutputs,
                                kOutputs * sizeof(float)),
                    0)
              << "group " << g << " row " << r;
        }
      }
    }
  }
}

TEST_P(GroupedMatmulTest, AMatrixForEachHead) {
  const Matrices weights(3);
  for (const int64_t rows : {1, 2, 37}) {
    const int64_t stride = kGroups * kInputs;
    const std::vector<float> x = random_rows(rows, stride);
    GroupedMatmulArgs grouped = args(weights, 2);
    grouped.shared.input.rows = rows;
    std::vector<std::byte> packed(static_cast<size_t>(kGroups * grouped.shared.input.bytes()));
    grouped.shared.input.data = packed.data();
    // Columns between the heads' are left alone.
    constexpr int64_t kColumns = kOutputs + 6;
    std::vector<float> out(static_cast<size_t>(rows * kGroups * kColumns), -1.0f);
    grouped.shared.out = out.data();
    grouped.shared.out_stride = kGroups * kColumns;
    grouped.out_group_columns = kColumns;
    for (int g = 0; g < kGroups; ++g) {
      pack_activations(*grouped.shared.kernels, x.data() + g * kInputs, stride, 0, rows,
                       group_input(grouped, g));
    }
    run(grouped);
    for (int g = 0; g < kGroups; ++g) {
      std::vector<float> own;
      for (int64_t r = 0; r < rows; ++r) {
        const float* row = x.data() + r * stride + g * kInputs;
        own.insert(own.end(), row, row + kInputs);
      }
      const std::vector<float> expected = alone(grouped, g, own);
      for (int64_t r = 0; r < rows; ++r) {
        const float* row = out.data() + r * kGroups * kColumns + g * kColumns;
        EXPECT_EQ(std::memcmp(row, expected.data() + r * kOutputs, kOutputs * sizeof(float)), 0);
        for (int64_t c = kOutputs; c < kColumns; ++c) EXPECT_EQ(row[c], -1.0f);
      }
    }
  }
}

// A group in another format than the first one's may have to be expanded.
TEST_P(GroupedMatmulTest, ScratchIsThatOfTheFormatThatTakesMost) {
  Matrices weights(4);
  GroupedMatmulArgs grouped = args(weights, 1);
  const int64_t plain = grouped_matmul_scratch_bytes(grouped);
  weights.packed[2] = *packed_layout(WeightFormat::kQ8_0, kOutputs, kInputs);
  const int64_t mixed = grouped_matmul_scratch_bytes(grouped);
  grouped.weights = weights.packed.data() + 2;
  grouped.num_groups = 1;
  EXPECT_GT(mixed, plain);
  EXPECT_EQ(mixed, grouped_matmul_scratch_bytes(grouped));
}

TEST_P(GroupedMatmulTest, ScratchIsEnoughForAnyNumberOfRows) {
  const Matrices weights(1);
  GroupedMatmulArgs grouped = args(weights, 1);
  const LeafCuts leaves = LeafCuts::of(kInputs / 32, 32);
  for (const LeafCuts* cuts : {static_cast<const LeafCuts*>(nullptr), &leaves}) {
    for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kSiluMul}) {
      grouped.shared.leaves = cuts;
      grouped.shared.epilogue = epilogue;
      grouped.ups = epilogue == Epilogue::kSiluMul ? grouped.weights : nullptr;
      const int64_t scratch = grouped_matmul_scratch_bytes(grouped);
      MatmulArgs matmul = grouped.shared;
      matmul.weight = grouped.weights;
      matmul.up = grouped.ups;
      for (int64_t rows = 1; rows <= 2 * kMostBlockRows + 1; ++rows) {
        matmul.input.rows = rows;
        ASSERT_LE(plan_matmul(matmul, 2).scratch_bytes, scratch) << rows << " rows";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, GroupedMatmulTest,
                         testing::ValuesIn(available_isas(detect_cpu_features())),
                         [](const auto& param) { return std::string(name_of(param.param)); });

}  // namespace
}  // namespace millrace
