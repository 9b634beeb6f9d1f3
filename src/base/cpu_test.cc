#include "base/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

TEST(Cpu, QuotasAreRoundedUp) {
  EXPECT_EQ(cpus_of_quota("max 100000\n"), 0);
  EXPECT_EQ(cpus_of_quota("200000 100000\n"), 2);
  EXPECT_EQ(cpus_of_quota("150000 100000\n"), 2);
  EXPECT_EQ(cpus_of_quota("1000 100000\n"), 1);
  EXPECT_EQ(cpus_of_quota("-1\n 100000\n"), 0);
  EXPECT_EQ(cpus_of_quota(""), 0);
  EXPECT_EQ(cpus_of_quota("100000 0"), 0);
}

TEST(Cpu, TheMachineHasSomethingToOffer) {
  EXPECT_GE(available_cpus(), 1);
  EXPECT_GT(total_memory(), int64_t{1} << 24);
  EXPECT_GT(available_memory(), 0);
  EXPECT_LE(available_memory(), total_memory());
}

TEST(Cpu, CachesAreCountedOnce) {
  EXPECT_EQ(bytes_of_caches({}), 0);
  EXPECT_EQ(bytes_of_caches({{"0-7\n", "32768K\n"}, {"0-7\n", "32768K\n"}}), int64_t{32} << 20);
  EXPECT_EQ(bytes_of_caches({{"0-7", "96M"}, {"8-15", "98304K"}}), int64_t{192} << 20);
  EXPECT_EQ(bytes_of_caches({{"0", ""}, {"1", "K"}, {"2", "-5K"}, {"3", "7"}, {"4", "1K"}}), 1024);
}

TEST(Cpu, MemoryBeyondTheCachesFits) {
  const int64_t bytes = bytes_beyond_caches();
  EXPECT_GE(bytes, std::min<int64_t>(int64_t{512} << 20, available_memory() / 5));
  EXPECT_LT(bytes, available_memory() / 2);
}

TEST(Cpu, WiderInstructionSetsImplyNarrowerOnes) {
  const CpuFeatures features = detect_cpu_features();
  EXPECT_LE(features.avx512, features.avx2);
  EXPECT_LE(features.avx512_vnni, features.avx512);
  EXPECT_LE(features.avx512_bf16, features.avx512);
  EXPECT_EQ(features.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(features.avx512_vnni, features.avx512 && __builtin_cpu_supports("avx512vnni"));
  EXPECT_EQ(is_intel_cpu(), __builtin_cpu_is("intel") != 0);
}

}  // namespace
}  // namespace millrace
