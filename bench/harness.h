// What the kernel benchmarks share: the command line, threads and their CPU time, the roofs.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "kernels/isa.h"
#include "tensor/dtype.h"

namespace millrace::bench {

// What a figure is measured with.
struct Settings {
  int threads = 1;
  Isa isa = available_isas(detect_cpu_features()).back();
  double seconds = 0.5;  // for each figure, the runs of which the best counts
};

// Options that several benchmarks have; the help shows the default, which is the value now.
void add_threads(CLI::App& app, Settings& settings);
void add_isa(CLI::App& app, Settings& settings);
void add_seconds(CLI::App& app, Settings& settings);
// `dtypes`: those that are accepted.
void add_dtype(CLI::App& app, const std::string& name, DType& dtype, std::vector<DType> dtypes,
               const std::string& help);

// Reads the command line. Nothing if the benchmark is to run; else its exit code: 0 after --help,
// 2 after one line on standard error about what cannot be read.
std::optional<int> parse(CLI::App& app, int argc, char** argv);

// CPU seconds of the threads of a run. CPU time, so that other work on the machine blurs it less.
struct Times {
  // Of the mean of the threads: right where they claim items, of which a busy machine lets one do
  // more than another.
  double mean = 0;
  // Of the slowest: right where the split of the work is a part of what is measured.
  double slowest = 0;
};

double thread_seconds();

// Runs body(thread) on all threads at once.
Times run_threads(int threads, const std::function<void(int)>& body);

// The best of runs that take settings.seconds in all (at least one): the least of each figure.
// `prepare` goes before each run and is not counted.
Times best_times(
    const Settings& settings, const std::function<void(int)>& body,
    const std::function<void()>& prepare = [] {});

// Counters from which threads claim the items of several pieces of work.
class Claims {
 public:
  explicit Claims(int64_t num_works) : counters_(static_cast<size_t>(num_works)) {}

  // All items are free again. Not while threads claim.
  void reset() {
    for (Counter& counter : counters_) counter.next.store(0);
  }

  // body(item) for those of the items [0, count) of a piece of work that nobody else claims.
  template <typename Body>
  void each(int64_t work, int64_t count, const Body& body) {
    auto& next = counters_[static_cast<size_t>(work)].next;
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i);
  }

 private:
  struct alignas(64) Counter {
    std::atomic<int64_t> next{0};
  };
  std::vector<Counter> counters_;
};

// Memory far larger than the caches, all of it written. Ends the process if there is none.
Buffer memory_beyond_caches();

// What the machine reaches on all threads together; 0 where the CPU lacks the instructions that it
// is measured with (AVX-512 VNNI, AVX-512, AVX-512 BF16, AVX-512).
double int8_peak(const Settings& settings);  // multiply-adds a second
double fma_peak(const Settings& settings);
double bf16_peak(const Settings& settings);
// Bytes a second of reading `memory`.
double read_bandwidth(const Settings& settings, const Buffer& memory);

// 100 * part / whole; 0 if the whole is not known.
double percent(double part, double whole);

}  // namespace millrace::bench
