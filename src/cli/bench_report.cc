#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace millrace {
namespace {

std::vector<double> per_second(const std::vector<BenchRun>& runs,
                               const std::function<double(const BenchRun&)>& amount) {
  std::vector<double> rates;
  rates.reserve(runs.size());
  for (const BenchRun& run : runs) rates.push_back(amount(run) / run.seconds);
  return rates;
}

std::vector<double> token_rates(const std::vector<BenchRun>& runs) {
  return per_second(runs, [](const BenchRun& run) { return static_cast<double>(run.tokens); });
}

std::string size_text(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.2f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

std::string count_text(int64_t parameters) {
  const double millions = static_cast<double>(parameters) / 1e6;
  return millions < 1000 ? fmt::format("{:.2f} M", millions)
                         : fmt::format("{:.2f} B", millions / 1000);
}

constexpr const char* kLine =
    "| {:<30} | {:>10} | {:>8} | {:>7} | {:>5} | {:>15} | {:>20} | {:>21} |\n";

}  // namespace

std::string BenchTest::name() const {
  std::string text = fmt::format("{}{}", decode ? "tg" : "pp", length);
  if (depth > 0) text += fmt::format(" @ d{}", depth);
  return text;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double BenchRow::rate() const { return median(token_rates(runs)); }

double BenchRow::rate_deviation() const {
  const std::vector<double> rates = token_rates(runs);
  if (rates.size() < 2) return 0;
  double mean = 0;
  for (const double rate : rates) mean += rate / static_cast<double>(rates.size());
  double squares = 0;
  for (const double rate : rates) squares += (rate - mean) * (rate - mean);
  return std::sqrt(squares / static_cast<double>(rates.size() - 1));
}

double BenchRow::bytes_rate() const {
  return median(per_second(
      runs, [](const BenchRun& run) { return run.cost.weight_bytes + run.cost.cache_bytes; }));
}

double BenchRow::multiply_add_rate() const {
  return median(per_second(runs, [](const BenchRun& run) { return run.cost.multiply_adds; }));
}

std::optional<double> BenchRow::share() const {
  if (test.decode) return bytes_rate() / peaks.read_bandwidth;
  if (!peaks.multiply_adds) return std::nullopt;
  return multiply_add_rate() / *peaks.multiply_adds;
}

std::string table_head() {
  return fmt::format(kLine, "model", "size", "params", "threads", "batch", "test", "t/s",
                     "share of bound") +
         fmt::format(
             "| {:-<30} | {:->9}: | {:->7}: | {:->6}: | {:->4}: | {:->14}: | {:->19}: | "
             "{:->20}: |\n",
             "", "", "", "", "", "", "", "");
}

std::string table_line(const BenchRow& row) {
  std::string share = "-";
  if (const auto part = row.share()) {
    share = fmt::format("{:.0f}% of {}", *part * 100,
                        row.test.decode ? "read bandwidth" : name_of(row.peak_kind));
  }
  return fmt::format(kLine, row.model.name, size_text(row.model.bytes),
                     count_text(row.model.parameters), row.threads, row.test.batch, row.test.name(),
                     fmt::format("{:.2f} ± {:.2f}", row.rate(), row.rate_deviation()), share);
}

nlohmann::ordered_json to_json(const BenchRow& row) {
  const auto share = row.share();
  nlohmann::ordered_json peak = nullptr;
  if (row.peaks.multiply_adds) peak = *row.peaks.multiply_adds;
  nlohmann::ordered_json json = {
      {"model", row.model.name},
      {"model_format", row.model.format},
      {"model_size", row.model.bytes},
      {"model_n_params", row.model.parameters},
      {"isa", row.isa},
      {"n_threads", row.threads},
      {"n_prompt", row.test.decode ? 0 : row.test.length},
      {"n_gen", row.test.decode ? row.test.length : 0},
      {"n_depth", row.test.depth},
      {"n_batch", row.test.batch},
      {"test", row.test.name()},
      {"median_ts", row.rate()},
      {"stddev_ts", row.rate_deviation()},
      {"samples_ts", token_rates(row.runs)},
      {"bytes_per_second", row.bytes_rate()},
      {"multiply_adds_per_second", row.multiply_add_rate()},
      {"read_bandwidth", row.peaks.read_bandwidth},
      {"peak_kind", name_of(row.peak_kind)},
      {"peak_multiply_adds", std::move(peak)},
      {"share_of_bound", share ? nlohmann::ordered_json(*share) : nlohmann::ordered_json()}};
  // With --profile: where the time of the last run went, by kind of step.
  for (const auto& [label, profile] : row.runs.back().profile) {
    json["profile"][label] = {{"seconds", profile.seconds},
                              {"steps", profile.count},
                              {"multiply_adds", profile.cost.multiply_adds},
                              {"bytes", profile.cost.weight_bytes + profile.cost.cache_bytes}};
  }
  return json;
}

}  // namespace millrace
