// The indexer against the roofs of this machine, measured in the same run.
//
// One core. Decode: one token over a whole history; tiles of prefill: four tokens that share each
// loaded key; packing of the queries, scores and choice together. G multiply-adds a second, their
// share of the int8 (or fp32 FMA) peak, GB/s of keys and their share of the read bandwidth. Merge:
// of the candidates that two threads leave, who each had half of the history. Choice: decode with
// one head of four elements, where little but the choice is left. Blocks of the pool, of
// --block-size positions, are shuffled. Time is CPU time, so that a busy machine blurs it less; the
// best of several runs is shown. With --cold, more than the caches hold is read before each run of
// decode, prefill and choice, and the median is shown: keys, queries and scratch memory come from
// memory then, as after a model's matmuls.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "harness.h"
#include "kernels/indexer.h"
#include "tensor/mla_layout.h"

namespace millrace::bench {
namespace {

struct Options : Settings {
  DType keys = DType::kI8;
  int heads = 32;
  int topk = 2048;
  int block_size = 16;
  int64_t history = 0;  // 0: several
  bool cold = false;
};

// Median of runs that each begin with nothing in the caches.
double median_cold_seconds(double seconds, const std::function<void(int)>& body) {
  static const Buffer other = memory_beyond_caches();
  std::vector<double> runs;
  volatile unsigned sink = 0;
  const double begin = thread_seconds();
  while (thread_seconds() - begin < seconds || runs.size() < 9) {
    for (size_t i = 0; i < other.size(); i += 64)
      sink = sink + static_cast<unsigned>(other.data()[i]);
    runs.push_back(run_threads(1, body).mean);
  }
  std::nth_element(runs.begin(), runs.begin() + static_cast<int64_t>(runs.size() / 2), runs.end());
  return runs[runs.size() / 2];
}

// One layer's keys of one sequence, random, and some queries at its end.
class Workload {
 public:
  Workload(const Options& options, int heads, int dim, int64_t history, int tokens)
      : options_(options), heads_(heads), dim_(dim), history_(history), tokens_(tokens) {
    const MlaLayout layout = MlaLayout::make({.dtype = DType::kF16,
                                              .index_dtype = options.keys,
                                              .block_size = options.block_size,
                                              .index_dim = dim},
                                             {1});
    const int64_t block_size = options.block_size;
    const int64_t blocks = (history + block_size - 1) / block_size;
    table_.resize(static_cast<size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), generator_);
    memory_ = std::move(*Buffer::allocate(static_cast<size_t>(layout.block_bytes * blocks)));
    args_.cache = mla_layer_view(layout, 0, memory_.data(), blocks);
    write_keys();
    sequence_ = {0, tokens, history - tokens, table_.data()};
    q_ = draw(int64_t{tokens} * heads * dim);
    weights_ = draw(int64_t{tokens} * heads);
    positions_.resize(static_cast<size_t>(tokens * options.topk));
    leaf_begin_.resize(static_cast<size_t>(tokens * 17));
    scratch_ =
        std::move(*Buffer::allocate(static_cast<size_t>(indexer_scratch_bytes(options.topk))));
    queries_ = std::move(*Buffer::allocate(
        static_cast<size_t>(tokens * index_query_bytes(heads, dim, options.keys))));
    args_.queries = queries_.data();
    args_.q = q_.data();
    args_.q_stride = int64_t{heads} * dim;
    args_.weights = weights_.data();
    args_.weights_stride = heads;
    args_.num_heads = heads;
    args_.topk = options.topk;
    args_.sequences = &sequence_;
    args_.positions = positions_.data();
    args_.selection_stride = options.topk;
    args_.leaf_begin = leaf_begin_.data();
  }

  double run() {
    const IndexerKernels& kernels = indexer_kernels(options_.isa);
    const auto run_item = [&](int) {
      kernels.pack(args_, {0, tokens_, 0, heads_}, nullptr);
      kernels.run_item(args_, {0, 0, tokens_, 0, history_, -1}, scratch_.data());
    };
    return options_.cold ? median_cold_seconds(options_.seconds, run_item)
                         : best_times(options_, run_item).mean;
  }

  // The merge of two parts, which are made once.
  double run_merge() {
    const IndexerKernels& kernels = indexer_kernels(options_.isa);
    const int64_t part_bytes = index_candidates_bytes(options_.topk);
    Buffer workspace = std::move(*Buffer::allocate(static_cast<size_t>(2 * part_bytes)));
    args_.workspace = workspace.data();
    kernels.pack(args_, {0, 1, 0, heads_}, nullptr);
    const int64_t half = history_ / 32 * 16;
    kernels.run_item(args_, {0, 0, 1, 0, half, 0}, scratch_.data());
    kernels.run_item(args_, {0, 0, 1, half, history_, part_bytes}, scratch_.data());
    return best_times(options_,
                      [&](int) {
                        kernels.merge(args_, {0, 0, 2, 0}, scratch_.data());
                      })
        .mean;
  }

  double multiply_adds() const { return static_cast<double>(history_) * tokens_ * heads_ * dim_; }
  double bytes() const {
    const int64_t key = options_.keys == DType::kI8 ? dim_ + 4 : dim_ * size_of(options_.keys);
    return static_cast<double>(history_ * key);
  }

 private:
  std::vector<float> draw(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& x : values) x = normal(generator_);
    return values;
  }

  void write_keys() {
    const std::vector<float> some = draw(4096 + dim_);
    std::vector<int64_t> slots;
    const int64_t block_size = options_.block_size;
    for (int64_t p = 0; p < history_; ++p) {
      slots.push_back(table_[static_cast<size_t>(p / block_size)] * block_size + p % block_size);
    }
    for (int64_t p = 0; p < history_; ++p) {
      const IndexWriteArgs write{some.data() + generator_() % 4096, 0, slots.data(), args_.cache};
      indexer_kernels(options_.isa).write(write, p, p + 1);
    }
  }

  Options options_;
  int heads_;
  int dim_;
  int64_t history_;
  int32_t tokens_;
  std::mt19937 generator_{1};
  std::vector<int32_t> table_;
  Buffer memory_;
  AttentionSequence sequence_;
  std::vector<float> q_;
  std::vector<float> weights_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> leaf_begin_;
  Buffer scratch_;
  Buffer queries_;
  IndexerArgs args_;
};

void run(const Options& options) {
  const double peak = options.keys == DType::kI8 ? int8_peak(options) : fma_peak(options);
  const double bandwidth = read_bandwidth(options, memory_beyond_caches());
  std::printf("%s, keys %s, %d heads of 128, top %d; peak %.1f G/s, read bandwidth %.1f GB/s\n",
              indexer_kernels(options.isa).name, std::string(name_of(options.keys)).c_str(),
              options.heads, options.topk, peak * 1e-9, bandwidth * 1e-9);
  std::vector<int64_t> histories{4096, 16384, 32768, 65536, 131072};
  if (options.history > 0) histories = {options.history};
  for (const int64_t history : histories) {
    for (const int tokens : {1, 4}) {
      Workload workload(options, options.heads, 128, history, tokens);
      const double seconds = workload.run();
      const double rate = workload.multiply_adds() / seconds;
      const double read = workload.bytes() / seconds;
      std::printf("%-7s history %6ld: %8.1f us a token, %6.1f G/s %3.0f%% of peak, ",  //
                  tokens == 1 ? "decode" : "prefill", history, seconds / tokens * 1e6, rate * 1e-9,
                  percent(rate, peak));
      std::printf("%5.1f GB/s %3.0f%% of bandwidth\n", read * 1e-9, percent(read, bandwidth));
    }
    Workload parts(options, options.heads, 128, history, 1);
    std::printf("merge   history %6ld: %8.1f us a token\n", history, parts.run_merge() * 1e6);
    Workload choice(options, 1, 4, history, 1);
    std::printf("choice  history %6ld: %8.1f us a token\n", history, choice.run() * 1e6);
  }
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  namespace bench = millrace::bench;
  using millrace::DType;
  bench::Options options;
  options.seconds = 0.3;
  CLI::App app("The indexer against the roofs of this machine, on one core.", "indexer_bench");
  bench::add_isa(app, options);
  bench::add_seconds(app, options);
  bench::add_dtype(app, "--keys", options.keys, {DType::kI8, DType::kBF16, DType::kF32},
                   "Cache of keys");
  app.add_option("--heads", options.heads, "Heads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--topk", options.topk, "Keys to choose")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--block-size", options.block_size, "Positions of a block of the pool")
      ->check(CLI::IsMember({16, 32, 64, 128, 256, 512, 1024}))
      ->capture_default_str();
  app.add_option("--history", options.history, "Only this many keys")
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 24));
  app.add_flag("--cold", options.cold, "Begin each run with nothing in the caches; the median");
  if (const auto exit_code = bench::parse(app, argc, argv)) return *exit_code;
  bench::run(options);
  return 0;
}
