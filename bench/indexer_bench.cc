// The indexer against the roofs of this machine, measured in the same run.
//
//   indexer_bench [--isa NAME] [--keys int8|bf16|f32] [--heads N] [--topk K] [--layers N]
//                 [--history N] [--seconds S] [--cold 0|1]
//
// One core. Decode: one token over a whole history, scores and choice together; tiles of prefill:
// four tokens that share each loaded key. G multiply-adds a second, their share of the int8 (or
// fp32 FMA) peak, GB/s of keys and their share of the read bandwidth. Choice: the same with one
// head of four elements, nothing else in the pool, where little but the choice is left. Else a
// block of the pool holds 16 positions of all layers, with f16 rows of GLM-5's latents, so that
// keys lie as far apart as in a model. Time is CPU time, so that a busy machine blurs it less; the
// best of several runs is shown. With --cold 1, 256 MB are read before each run and the median is
// shown: keys, queries and scratch memory come from memory then, as after a model's matmuls.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/cpu.h"
#include "kernels/indexer.h"
#include "kernels/matmul_roofs.h"
#include "tensor/mla_layout.h"

namespace millrace {
namespace {

struct Options {
  Isa isa = Isa::kPortable;
  DType keys = DType::kI8;
  int heads = 32;
  int topk = 2048;
  int layers = 2;
  int64_t history = 0;   // 0: several
  double seconds = 0.3;  // for each figure
  bool cold = false;
};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Best of runs that take `seconds` in all.
template <typename Body>
double best_seconds(double seconds, const Body& body) {
  double best = 1e30;
  double total = 0;
  while (total < seconds) {
    const double begin = thread_seconds();
    body();
    const double spent = thread_seconds() - begin;
    best = std::min(best, spent);
    total += spent + 1e-5;
  }
  return best;
}

// Median of runs that each begin with nothing in the caches.
template <typename Body>
double median_cold_seconds(double seconds, const Body& body) {
  constexpr size_t kBytes = size_t{256} << 20;
  static std::vector<unsigned char> other(kBytes, 1);
  std::vector<double> runs;
  double total = 0;
  volatile unsigned sink = 0;
  while (total < seconds || runs.size() < 9) {
    const double begin = thread_seconds();
    for (size_t i = 0; i < kBytes; i += 64) sink = sink + other[i];
    const double start = thread_seconds();
    body();
    runs.push_back(thread_seconds() - start);
    total += thread_seconds() - begin;
  }
  std::nth_element(runs.begin(), runs.begin() + static_cast<int64_t>(runs.size() / 2), runs.end());
  return runs[runs.size() / 2];
}

// Multiply-adds a second of the instruction that the scores are made of.
double compute_peak(const Options& options) {
  const CpuFeatures features = detect_cpu_features();
  constexpr int64_t kRounds = 1000000;
  const bool is_int8 = options.keys == DType::kI8;
  if (is_int8 ? !features.avx512_vnni : !features.avx512) return 0;
  double work = 0;
  const double seconds = best_seconds(options.seconds, [&] {
    work = (is_int8 ? roof_int8_avx512vnni(kRounds) : roof_fma_avx512(kRounds)) * kRounds;
  });
  return work / seconds;
}

// Bytes a second of reading memory far larger than the caches.
double read_bandwidth(const Options& options) {
  if (!detect_cpu_features().avx512) return 0;
  constexpr int64_t kBytes = int64_t{256} << 20;
  auto buffer = Buffer::allocate(kBytes);
  if (!buffer) std::exit(1);
  std::memset(buffer->data(), 1, kBytes);
  int64_t sink = 0;
  const double seconds =
      best_seconds(options.seconds, [&] { sink += roof_read_avx512(buffer->data(), kBytes); });
  if (sink == 1) std::puts("");
  return static_cast<double>(kBytes) / seconds;
}

// One layer's keys of one sequence, random, and some queries at its end.
class Workload {
 public:
  Workload(const Options& options, int heads, int dim, int64_t history, int tokens)
      : options_(options), heads_(heads), dim_(dim), history_(history), tokens_(tokens) {
    const MlaLayout layout = MlaLayout::make(
        {.dtype = DType::kF16,
         .index_dtype = options.keys,
         .latent = dim == 4 ? 0 : 512,
         .rope = dim == 4 ? 0 : 64,
         .index_dim = dim},
        std::vector<uint8_t>(static_cast<size_t>(dim == 4 ? 1 : options.layers), 1));
    const int64_t blocks = (history + 15) / 16;
    table_.resize(static_cast<size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), generator_);
    memory_ = std::move(*Buffer::allocate(static_cast<size_t>(layout.block_bytes * blocks)));
    MlaLayerView& view = args_.cache;
    view.index_dtype = options.keys;
    view.index_dim = dim;
    view.block_stride = layout.block_bytes;
    view.index_keys = memory_.data() + layout.layers[0].index_keys;
    view.index_scales = memory_.data() + std::max<int64_t>(0, layout.layers[0].index_scales);
    write_keys();
    sequence_ = {0, tokens, history - tokens, table_.data()};
    q_ = draw(int64_t{tokens} * heads * dim);
    weights_ = draw(int64_t{tokens} * heads);
    positions_.resize(static_cast<size_t>(tokens * options.topk));
    leaf_begin_.resize(static_cast<size_t>(tokens * 17));
    scratch_ = std::move(
        *Buffer::allocate(static_cast<size_t>(indexer_scratch_bytes(heads, dim, options.topk))));
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
    const auto run_item = [&] {
      kernels.run_item(args_, {0, 0, tokens_, 0, history_, -1}, scratch_.data());
    };
    return options_.cold ? median_cold_seconds(options_.seconds, run_item)
                         : best_seconds(options_.seconds, run_item);
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
    for (int64_t p = 0; p < history_; ++p) {
      slots.push_back(int64_t{table_[static_cast<size_t>(p / 16)]} * 16 + p % 16);
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
  IndexerArgs args_;
};

void run(const Options& options) {
  const double peak = compute_peak(options);
  const double bandwidth = read_bandwidth(options);
  const auto percent = [](double part, double whole) { return whole > 0 ? 100 * part / whole : 0; };
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
    Workload choice(options, 1, 4, history, 1);
    std::printf("choice  history %6ld: %8.1f us a token\n", history, choice.run() * 1e6);
  }
}

Options parse(int argc, char** argv) {
  Options options;
  options.isa = available_isas(detect_cpu_features()).back();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--heads") {
      options.heads = std::clamp(std::atoi(value.c_str()), 1, 1024);
    } else if (flag == "--topk") {
      options.topk = std::clamp(std::atoi(value.c_str()), 1, 1 << 20);
    } else if (flag == "--layers") {
      options.layers = std::clamp(std::atoi(value.c_str()), 1, 100);
    } else if (flag == "--history") {
      options.history = std::clamp<int64_t>(std::atoll(value.c_str()), 16, int64_t{1} << 24);
    } else if (flag == "--seconds") {
      options.seconds = std::atof(value.c_str());
    } else if (flag == "--cold") {
      options.cold = value == "1";
    } else if (flag == "--isa") {
      const auto isa = resolve_isa(value, detect_cpu_features());
      if (!isa) {
        std::fprintf(stderr, "%s\n", isa.error().message.c_str());
        std::exit(1);
      }
      options.isa = *isa;
    } else if (flag == "--keys" && parse_dtype(value)) {
      options.keys = *parse_dtype(value);
    } else {
      std::fprintf(stderr, "unknown option %s %s: see the head of indexer_bench.cc\n", argv[i],
                   argv[i + 1]);
      std::exit(1);
    }
  }
  return options;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::run(millrace::parse(argc, argv));
  return 0;
}
