// What this machine offers to this process: CPUs, instruction sets, memory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

// Instruction-set extensions that the CPU has and the system lets us use (its registers are saved).
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // F, BW, VL, DQ, CD
  bool avx512_vnni = false;  // int8 dot products
  bool avx512_bf16 = false;  // bf16 dot products
};

CpuFeatures detect_cpu_features();

// Whether Intel made the CPU: for choices between ways of reading memory, never between results.
bool is_intel_cpu();

// CPUs that this process may run on: its affinity mask, cut to the CPU quota of its control group
// (rounded up). At least 1.
int available_cpus();

// CPUs that a quota "QUOTA PERIOD" (microseconds, as in cpu.max) allows, rounded up; 0 for no limit
// ("max 100000") or an unreadable text.
int cpus_of_quota(const std::string& cpu_max);

// Bytes of memory in the machine, cut to the limit of the control group.
int64_t total_memory();

// Bytes that can be allocated without swapping, likewise cut.
int64_t available_memory();

// Bytes of a core's second-level cache; 0 if unknown.
int64_t level2_cache_bytes();

// Bytes of the distinct caches among (the CPUs that share one, its size as in cache/index3/size:
// "32768K"); an unreadable size counts as 0.
int64_t bytes_of_caches(const std::vector<std::pair<std::string, std::string>>& caches);

// Bytes of a memory that is far larger than the machine's caches, for measuring how fast memory is
// read: four times all caches of the third level together, at least 512 MiB, and at most a quarter
// of what is available.
int64_t bytes_beyond_caches();

}  // namespace millrace
