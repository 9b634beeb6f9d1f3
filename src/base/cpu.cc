#include "base/cpu.h"

#include <cpuid.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace millrace {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct Registers {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

bool bit(uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

// Which register sets the system saves at a task switch (XCR0).
uint64_t saved_register_sets() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Value of a line "NAME[:] VALUE" in bytes or kB, or nothing.
std::optional<int64_t> value_in(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    int64_t value = 0;
    if (rest >> value) return value;
  }
  return std::nullopt;
}

// Folders of this process's control group and its parents, innermost first (version 2), and the
// mount points of version 1.
std::vector<std::string> control_groups() {
  std::vector<std::string> folders;
  std::istringstream lines(read_text("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("0::")) continue;
    std::string path = line.substr(3);
    while (!path.empty() && path != "/") {
      folders.push_back("/sys/fs/cgroup" + path);
      path = path.substr(0, path.rfind('/'));
    }
  }
  folders.emplace_back("/sys/fs/cgroup");
  return folders;
}

int64_t memory_limit_of(const std::string& folder) {
  std::istringstream text(read_text(folder + "/memory.max"));
  int64_t limit = 0;
  return text >> limit ? limit : kNoLimit;
}

// Bytes that a control group may still take; file pages that it holds can be dropped.
int64_t memory_left_in(const std::string& folder) {
  const int64_t limit = memory_limit_of(folder);
  if (limit == kNoLimit) return kNoLimit;
  std::istringstream text(read_text(folder + "/memory.current"));
  int64_t used = 0;
  text >> used;
  const std::string stat = read_text(folder + "/memory.stat");
  const int64_t droppable =
      value_in(stat, "inactive_file ").value_or(0) + value_in(stat, "active_file ").value_or(0);
  return std::max<int64_t>(limit - used + droppable, 0);
}

// Version 1 has one limit for the whole container.
int64_t old_memory_limit() {
  std::istringstream text(read_text("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  int64_t limit = 0;
  return text >> limit ? limit : kNoLimit;
}

int affinity_cpus() {
  // Larger than any machine's number of CPUs.
  constexpr int kMaxCpus = 8192;
  cpu_set_t* set = CPU_ALLOC(kMaxCpus);
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  CPU_ZERO_S(bytes, set);
  int count = 0;
  if (sched_getaffinity(0, bytes, set) == 0) count = CPU_COUNT_S(bytes, set);
  CPU_FREE(set);
  return count > 0 ? count : std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  const Registers basic = cpuid(1, 0);
  const bool os_saves = bit(basic.ecx, 27);
  const uint64_t saved = os_saves ? saved_register_sets() : 0;
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = ymm && (saved & 0xe0) == 0xe0;
  const Registers seven = cpuid(7, 0);
  const Registers seven_one = cpuid(7, 1);
  const bool fma_f16c = bit(basic.ecx, 12) && bit(basic.ecx, 29);
  features.avx2 = ymm && fma_f16c && bit(seven.ebx, 5);
  features.avx512 = zmm && features.avx2 && bit(seven.ebx, 16) && bit(seven.ebx, 17) &&
                    bit(seven.ebx, 28) && bit(seven.ebx, 30) && bit(seven.ebx, 31);
  features.avx512_vnni = features.avx512 && bit(seven.ecx, 11);
  features.avx512_bf16 = features.avx512 && bit(seven_one.eax, 5);
  return features;
}

bool is_intel_cpu() {
  const Registers vendor = cpuid(0, 0);
  char name[12];
  std::memcpy(name, &vendor.ebx, 4);
  std::memcpy(name + 4, &vendor.edx, 4);
  std::memcpy(name + 8, &vendor.ecx, 4);
  return std::string_view(name, sizeof name) == "GenuineIntel";
}

int cpus_of_quota(const std::string& cpu_max) {
  std::istringstream text(cpu_max);
  int64_t quota = 0;
  int64_t period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::min<int64_t>((quota + period - 1) / period, 1 << 20));
}

int available_cpus() {
  int count = affinity_cpus();
  for (const std::string& folder : control_groups()) {
    const int quota = cpus_of_quota(read_text(folder + "/cpu.max"));
    if (quota > 0) count = std::min(count, quota);
  }
  const int old_quota = cpus_of_quota(read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") + " " +
                                      read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  return old_quota > 0 ? std::min(count, old_quota) : count;
}

int64_t total_memory() {
  int64_t total = sysconf(_SC_PHYS_PAGES) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  for (const std::string& folder : control_groups()) {
    total = std::min(total, memory_limit_of(folder));
  }
  return std::min(total, old_memory_limit());
}

int64_t available_memory() {
  const auto kilobytes = value_in(read_text("/proc/meminfo"), "MemAvailable:");
  int64_t available = kilobytes ? *kilobytes * 1024 : total_memory();
  for (const std::string& folder : control_groups()) {
    available = std::min(available, memory_left_in(folder));
  }
  return std::min(available, old_memory_limit());
}

int64_t bytes_of_caches(const std::vector<std::pair<std::string, std::string>>& caches) {
  std::map<std::string, int64_t> sizes;
  for (const auto& [cpus, size] : caches) {
    std::istringstream text(size);
    int64_t count = 0;
    char unit = 0;
    if (!(text >> count >> unit) || count < 0) continue;
    if (unit == 'K') sizes[cpus] = count << 10;
    if (unit == 'M') sizes[cpus] = count << 20;
  }
  int64_t bytes = 0;
  for (const auto& [cpus, size] : sizes) bytes += size;
  return bytes;
}

int64_t level2_cache_bytes() { return std::max<int64_t>(0, sysconf(_SC_LEVEL2_CACHE_SIZE)); }

int64_t bytes_beyond_caches() {
  constexpr int64_t kLeast = int64_t{512} << 20;
  std::vector<std::pair<std::string, std::string>> caches;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator("/sys/devices/system/cpu", ignored)) {
    const std::string cache = entry.path().string() + "/cache/index3/";
    caches.emplace_back(read_text(cache + "shared_cpu_list"), read_text(cache + "size"));
  }
  return std::min(std::max(kLeast, 4 * bytes_of_caches(caches)), available_memory() / 4);
}

}  // namespace millrace
