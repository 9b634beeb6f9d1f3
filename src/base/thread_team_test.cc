#include "base/thread_team.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <numeric>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace millrace {
namespace {

// Teams smaller and larger than the machine; both ways of waiting.
class Teams : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Teams, EveryThreadRunsOncePerRegion) {
  const auto [threads, cores] = GetParam();
  ThreadTeam team(threads, cores);
  std::vector<int> count(threads, 0);
  for (int region = 0; region < 100; ++region) {
    team.run([&](int thread) { ++count[thread]; });
  }
  for (int c : count) EXPECT_EQ(c, 100);
}

TEST_P(Teams, WaitingPublishesWhatWasWrittenBefore) {
  const auto [threads, cores] = GetParam();
  ThreadTeam team(threads, cores);
  constexpr int kRounds = 200;
  std::vector<int> cells(threads, 0);
  std::vector<int> wrong(threads, 0);
  std::vector<std::atomic<int32_t>> arrived(2 * kRounds);
  const auto meet = [&](std::atomic<int32_t>& count) {
    if (count.fetch_add(1) + 1 == threads) count.notify_all();
    team.wait_until_equal(count, threads);
  };
  team.run([&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      cells[thread] = round;
      meet(arrived[2 * round]);
      for (int cell : cells) wrong[thread] += cell != round;
      meet(arrived[2 * round + 1]);
    }
  });
  EXPECT_EQ(std::accumulate(wrong.begin(), wrong.end(), 0), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Teams,
                         testing::Values(std::pair{1, 2}, std::pair{2, 2}, std::pair{3, 2},
                                         std::pair{16, 2}, std::pair{4, 8}));

TEST(ThreadTeam, TooManyThreadsAreAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more address space than the limit of this test";
#endif
  // In a child: the limit cannot be raised again.
  const auto start = [] {
    const rlimit limit{size_t{300} << 20, size_t{300} << 20};
    setrlimit(RLIMIT_AS, &limit);
    const auto team = ThreadTeam::create(500, 2);
    const bool refused =
        !team && team.error().message.find("does not start 500 threads") != std::string::npos;
    _exit(refused ? 0 : 1);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(0), "");
}

TEST(ThreadTeam, KeepsDenormals) {
  ThreadTeam team(3, 2);
  std::vector<int> kept(3, 0);
  team.run([&](int thread) { kept[thread] = denormals_are_kept() ? 1 : 0; });
  EXPECT_EQ(kept, std::vector<int>({1, 1, 1}));
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000;
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlushToZero);
  const bool seen = !denormals_are_kept();
  _mm_setcsr(mode);
  EXPECT_TRUE(seen);
#endif
}

}  // namespace
}  // namespace millrace
