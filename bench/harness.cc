#include "harness.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <thread>
#include <utility>

#include "base/cpu.h"
#include "kernels/matmul_roofs.h"

namespace millrace::bench {
namespace {

constexpr int kWrongUsageExitCode = 2;
constexpr int kMaxThreads = 256;

// Multiply-adds a second of a loop in registers.
double peak_of(const Settings& settings, double (*loop)(int64_t)) {
  constexpr int64_t kRounds = 1'000'000;
  const double work = loop(1) * static_cast<double>(kRounds) * settings.threads;
  return work / best_times(settings, [&](int) { loop(kRounds); }).mean;
}

}  // namespace

void add_threads(CLI::App& app, Settings& settings) {
  app.add_option("--threads", settings.threads, "Threads")
      ->check(CLI::Range(1, kMaxThreads))
      ->capture_default_str();
}

void add_isa(CLI::App& app, Settings& settings) {
  app.add_option_function<std::string>(
         "--isa",
         [&settings](const std::string& name) {
           const auto isa = resolve_isa(name, detect_cpu_features());
           if (!isa) throw CLI::ValidationError("--isa", isa.error().message);
           settings.isa = *isa;
         },
         "Kernels: portable, avx2, avx512 or avx512vnni")
      ->default_str(std::string(name_of(settings.isa)));
}

void add_seconds(CLI::App& app, Settings& settings) {
  app.add_option("--seconds", settings.seconds, "Time for each figure")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
}

void add_dtype(CLI::App& app, const std::string& name, DType& dtype, std::vector<DType> dtypes,
               const std::string& help) {
  std::vector<std::string_view> names;
  for (const DType accepted : dtypes) names.push_back(name_of(accepted));
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  app.add_option_function<std::string>(
         name,
         [name, list, &dtype, dtypes = std::move(dtypes)](const std::string& value) {
           const auto parsed = parse_dtype(value);
           if (!parsed || std::ranges::find(dtypes, *parsed) == dtypes.end()) {
             throw CLI::ValidationError(
                 name, fmt::format("found \"{}\", expected one of {}", value, list));
           }
           dtype = *parsed;
         },
         help + ": " + list)
      ->default_str(std::string(name_of(dtype)));
}

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "%s: %s; see --help\n", app.get_name().c_str(), error.what());
    return kWrongUsageExitCode;
  }
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Times run_threads(int threads, const std::function<void(int)>& body) {
  std::vector<double> spent(static_cast<size_t>(threads));
  std::atomic<int> arrived{0};
  const auto run = [&](int t) {
    arrived.fetch_add(1);
    while (arrived.load() < threads) std::this_thread::yield();
    const double begin = thread_seconds();
    body(t);
    spent[static_cast<size_t>(t)] = thread_seconds() - begin;
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
  run(0);
  for (std::thread& other : others) other.join();
  return {std::accumulate(spent.begin(), spent.end(), 0.0) / threads,
          *std::max_element(spent.begin(), spent.end())};
}

Times best_times(const Settings& settings, const std::function<void(int)>& body,
                 const std::function<void()>& prepare) {
  // A run shorter than the clock's steps still counts as some time, so that this ends.
  constexpr double kLeast = 1e-5;
  Times best{1e30, 1e30};
  double total = 0;
  do {
    prepare();
    const Times run = run_threads(settings.threads, body);
    best = {std::min(best.mean, run.mean), std::min(best.slowest, run.slowest)};
    total += std::max(run.slowest, kLeast);
  } while (total < settings.seconds);
  return best;
}

Buffer memory_beyond_caches() {
  const auto bytes = static_cast<size_t>(bytes_beyond_caches());
  auto memory = Buffer::allocate(bytes);
  if (!memory) {
    std::fprintf(stderr, "%s\n", memory.error().message.c_str());
    std::exit(1);
  }
  std::memset(memory->data(), 1, bytes);
  return std::move(*memory);
}

double int8_peak(const Settings& settings) {
  return detect_cpu_features().avx512_vnni ? peak_of(settings, roof_int8_avx512vnni) : 0;
}

double fma_peak(const Settings& settings) {
  return detect_cpu_features().avx512 ? peak_of(settings, roof_fma_avx512) : 0;
}

double bf16_peak(const Settings& settings) {
  return detect_cpu_features().avx512_bf16 ? peak_of(settings, roof_bf16_avx512bf16) : 0;
}

double read_bandwidth(const Settings& settings, const Buffer& memory) {
  if (!detect_cpu_features().avx512) return 0;
  const int64_t part = static_cast<int64_t>(memory.size()) / settings.threads / 4096 * 4096;
  std::atomic<int64_t> sink{0};
  const Times times = best_times(
      settings, [&](int t) { sink += roof_read_avx512(memory.data() + t * part, part); });
  return static_cast<double>(part * settings.threads) / times.mean;
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

}  // namespace millrace::bench
