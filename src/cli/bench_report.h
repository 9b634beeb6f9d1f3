// The rows of `millrace bench`, as a table like llama-bench's and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_driver.h"
#include "cli/bench_peaks.h"

namespace millrace {

// One test: prompts of `length` tokens (pp), or `length` decode steps (tg).
struct BenchTest {
  bool decode = false;
  int64_t length = 0;
  int64_t depth = 0;
  int64_t batch = 1;

  // "pp512", "tg128 @ d4096".
  std::string name() const;
  int64_t tokens() const { return length * batch; }
};

struct BenchModel {
  std::string name;    // architecture and file
  std::string format;  // the one that holds most parameters
  int64_t bytes = 0;   // packed
  int64_t parameters = 0;
};

struct BenchRow {
  BenchModel model;
  int threads = 1;
  std::string isa;
  PeakKind peak_kind = PeakKind::kFma;
  Peaks peaks;
  BenchTest test;
  std::vector<BenchRun> runs;

  double rate() const;  // tokens a second, median of the runs
  double rate_deviation() const;
  double bytes_rate() const;         // bytes of weights and cache a second, median
  double multiply_add_rate() const;  // a second, median
  // Share of the bound that matters: bandwidth for decode, arithmetic for prefill.
  std::optional<double> share() const;
};

double median(std::vector<double> values);

std::string table_head();
std::string table_line(const BenchRow& row);
nlohmann::ordered_json to_json(const BenchRow& row);

}  // namespace millrace
