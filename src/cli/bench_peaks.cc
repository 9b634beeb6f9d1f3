#include "cli/bench_peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/buffer.h"
#include "base/cpu.h"
#include "base/thread_team.h"
#include "kernels/matmul_roofs.h"

namespace millrace {
namespace {

constexpr int kTries = 5;

// Sum over memory for CPUs without AVX-512. Four chains, so that the additions do not limit it.
int64_t read_plain(const std::byte* memory, int64_t bytes) {
  uint64_t sums[4] = {};
  for (int64_t i = 0; i + 32 <= bytes; i += 32) {
    uint64_t words[4];
    std::memcpy(words, memory + i, sizeof words);
    for (int j = 0; j < 4; ++j) sums[j] += words[j];
  }
  return static_cast<int64_t>(sums[0] + sums[1] + sums[2] + sums[3]);
}

// Best rate of several tries: `work` units done by all threads together in one call of `body`.
template <typename Body>
double best_rate(ThreadTeam& team, double work, Body&& body) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    team.run(body);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, work / time.count());
  }
  return best;
}

double measure_bandwidth(ThreadTeam& team, bool avx512, Buffer& memory) {
  const int64_t part = static_cast<int64_t>(memory.size()) / team.size() / 4096 * 4096;
  // Written first by the thread that reads it: pages exist, and on its memory node.
  team.run([&](int thread) {
    std::memset(memory.data() + thread * part, 1, static_cast<size_t>(part));
  });
  std::atomic<int64_t> keep{0};
  return best_rate(team, static_cast<double>(part) * team.size(), [&](int thread) {
    const std::byte* mine = memory.data() + thread * part;
    keep += avx512 ? roof_read_avx512(mine, part) : read_plain(mine, part);
  });
}

using PeakLoop = double (*)(int64_t rounds);

PeakLoop loop_for(Isa isa, PeakKind kind) {
  switch (kind) {
    case PeakKind::kInt8:
      return isa == Isa::kAvx512Vnni ? roof_int8_avx512vnni : nullptr;
    case PeakKind::kBf16:
      return has_bf16_class(isa, detect_cpu_features()) ? roof_bf16_avx512bf16 : nullptr;
    case PeakKind::kFma:
      return isa >= Isa::kAvx512 ? roof_fma_avx512 : nullptr;
  }
  return nullptr;
}

}  // namespace

std::string_view name_of(PeakKind kind) {
  switch (kind) {
    case PeakKind::kFma:
      return "fp32 FMA";
    case PeakKind::kInt8:
      return "int8 dot";
    case PeakKind::kBf16:
      return "bf16 dot";
  }
  return "";
}

Result<Peaks> measure_peaks(int threads, Isa isa, PeakKind kind) {
  ThreadTeam team(threads, available_cpus());
  Peaks peaks;
  {
    MR_ASSIGN(Buffer memory, Buffer::allocate(static_cast<size_t>(bytes_beyond_caches())));
    peaks.read_bandwidth = measure_bandwidth(team, isa >= Isa::kAvx512, memory);
  }
  if (const PeakLoop loop = loop_for(isa, kind)) {
    constexpr int64_t kRounds = 2'000'000;
    const double work = loop(1) * static_cast<double>(kRounds) * threads;
    peaks.multiply_adds = best_rate(team, work, [&](int) { loop(kRounds); });
  }
  return peaks;
}

}  // namespace millrace
