#include "cli/bench_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

BenchRow example() {
  BenchRow row;
  row.model = {"small Q8_0", "Q8_0", 100 << 20, 125'000'000};
  row.threads = 2;
  row.isa = "avx512vnni";
  row.peak_kind = PeakKind::kInt8;
  row.peaks = {20e9, 200e9};
  row.test = {true, 10, 4096, 4};
  for (const double seconds : {1.0, 2.0, 0.5}) {
    row.runs.push_back(
        {seconds, 40, {.multiply_adds = 50e9, .weight_bytes = 8e9, .cache_bytes = 2e9}});
  }
  return row;
}

TEST(BenchReport, NamesTestsAsLlamaBenchDoes) {
  EXPECT_EQ((BenchTest{false, 512, 0, 1}).name(), "pp512");
  EXPECT_EQ((BenchTest{true, 128, 4096, 16}).name(), "tg128 @ d4096");
  EXPECT_EQ((BenchTest{true, 128, 4096, 16}).tokens(), 2048);
}

TEST(BenchReport, MediansAndShares) {
  BenchRow row = example();
  EXPECT_EQ(row.rate(), 40);
  EXPECT_NEAR(row.rate_deviation(), 30.55, 0.01);
  EXPECT_EQ(row.share(), 0.5) << "10 GB in a second of 20 GB/s";
  row.test.decode = false;
  EXPECT_EQ(row.share(), 0.25) << "50 G of 200 G multiply-adds";
  row.peaks.multiply_adds.reset();
  EXPECT_FALSE(row.share().has_value());
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

TEST(BenchReport, LinesHaveTheColumnsOfTheHead) {
  const std::string head = table_head();
  const std::string line = table_line(example());
  EXPECT_EQ(std::count(line.begin(), line.end(), '|'),
            std::count(head.begin(), head.begin() + static_cast<ptrdiff_t>(head.find('\n')), '|'));
  for (const char* part : {"small Q8_0", "100.00 MiB", "125.00 M", "tg10 @ d4096", "40.00 ± 30.55",
                           "50% of read bandwidth"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << "\n" << line;
  }
  const auto json = to_json(example());
  EXPECT_EQ(json["n_gen"], 10);
  EXPECT_EQ(json["n_prompt"], 0);
  EXPECT_EQ(json["median_ts"], 40.0);
  EXPECT_EQ(json["samples_ts"].size(), 3u);
  EXPECT_EQ(json["share_of_bound"], 0.5);
}

}  // namespace
}  // namespace millrace
