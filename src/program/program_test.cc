#include "program/program.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

struct AddArgs {
  const int64_t* in;
  int64_t* out;
  int64_t count;
  int64_t add;
};

void add_step(const AddArgs& args, int64_t begin, int64_t end, std::byte*) {
  for (int64_t i = begin; i < end; ++i) args.out[i] = args.in[args.count - 1 - i] + args.add;
}

class ProgramThreads : public testing::TestWithParam<int> {};

TEST_P(ProgramThreads, StepsSeeTheResultsOfTheStepsBeforeThem) {
  ThreadTeam team(GetParam(), 2);
  constexpr int64_t kCount = 1000;
  constexpr int kSteps = 200;
  std::vector<int64_t> a(kCount), b(kCount);
  for (int64_t i = 0; i < kCount; ++i) a[i] = i;
  Program program;
  for (int s = 0; s < kSteps; ++s) {
    program.add<AddArgs>("add", {kCount, 7}, add_step, {a.data(), b.data(), kCount, 1});
    std::swap(a, b);  // swaps the storage pointers, too
  }
  for (int run = 0; run < 3; ++run) program.run(team, nullptr, 0);
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(a[i], i + 3 * kSteps);
}

INSTANTIATE_TEST_SUITE_P(Teams, ProgramThreads, testing::Values(1, 2, 3, 5, 16));

TEST(Program, ClearKeepsNothing) {
  ThreadTeam team(2, 2);
  int64_t in = 1, out = 0;
  Program program;
  program.add<AddArgs>("add", {1, 1}, add_step, {&in, &out, 1, 5}, {.multiply_adds = 3});
  EXPECT_EQ(program.num_steps(), 1);
  EXPECT_EQ(program.total_cost().multiply_adds, 3);
  program.clear();
  EXPECT_EQ(program.num_steps(), 0);
  EXPECT_EQ(program.total_cost().multiply_adds, 0);
  program.run(team, nullptr, 0);
  EXPECT_EQ(out, 0);
}

TEST(Program, ScratchIsPerThread) {
  ThreadTeam team(3, 2);
  constexpr int64_t kItems = 5000;
  std::vector<std::byte> scratch(3 * 64);
  struct Args {
    int64_t* out;
  };
  std::vector<int64_t> out(kItems, -1);
  Program program;
  program.need_scratch(64);
  program.add<Args>(
      "through scratch", {kItems, 1},
      [](const Args& args, int64_t begin, int64_t, std::byte* mine) {
        // Would be overwritten in between if two threads shared it.
        auto* cell = reinterpret_cast<volatile int64_t*>(mine);
        *cell = begin;
        for (int i = 0; i < 50; ++i) *cell = *cell + 1;
        args.out[begin] = *cell;
      },
      Args{out.data()});
  program.run(team, scratch.data(), 64);
  for (int64_t i = 0; i < kItems; ++i) EXPECT_EQ(out[i], i + 50);
}

TEST(Program, StepsWithoutItemsArePassed) {
  ThreadTeam team(2, 2);
  int64_t in = 1, out = 0;
  Program program;
  program.add<AddArgs>("nothing", {0, 1}, add_step, {&in, &out, 0, 5});
  program.add<AddArgs>("add", {1, 8}, add_step, {&in, &out, 1, 5});
  program.run(team, nullptr, 0);
  EXPECT_EQ(out, 6);
}

TEST(Arena, CountsWithoutMemory) {
  Arena arena;
  EXPECT_EQ(arena.allocate<float>(10), nullptr);
  const int64_t mark = arena.mark();
  arena.allocate<float>(100);
  arena.release(mark);
  EXPECT_EQ(arena.mark(), 64);
  EXPECT_EQ(arena.peak(), 64 + 448);
}

}  // namespace
}  // namespace millrace
