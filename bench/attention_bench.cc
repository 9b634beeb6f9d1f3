// The attention kernel against the roofs of this machine, measured in the same run.
//
//   attention_bench [--threads N] [--isa NAME] [--cache f32|f16|bf16|int8] [--seconds S]
//
// Decode: GB/s of keys and values read by one token at a depth, over enough layers that the caches
// do not hold them, and the share of the read bandwidth. Prefill: G multiply-adds a second of
// causal attention over a prompt, and the share of the fp32 FMA peak. Time is each thread's CPU
// time (the slowest thread counts), so that a busy machine does not blur it; the best of several
// runs is shown.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "attention/gqa_plan.h"
#include "base/buffer.h"
#include "base/cpu.h"
#include "kernels/matmul_roofs.h"

namespace millrace {
namespace {

struct Options {
  int threads = 1;
  Isa isa = Isa::kPortable;
  DType cache = DType::kF16;
  double seconds = 1.0;  // for each figure
};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs body(thread) on all threads at once; the CPU seconds of the slowest.
double run_threads(int threads, const std::function<void(int)>& body) {
  std::vector<double> spent(static_cast<size_t>(threads));
  std::atomic<int> arrived{0};
  std::vector<std::thread> team;
  for (int t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      arrived.fetch_add(1);
      while (arrived.load() < threads) std::this_thread::yield();
      const double begin = thread_seconds();
      body(t);
      spent[static_cast<size_t>(t)] = thread_seconds() - begin;
    });
  }
  for (std::thread& thread : team) thread.join();
  return *std::max_element(spent.begin(), spent.end());
}

// Best of runs that take `seconds` in all.
double best_seconds(const Options& options, const std::function<void(int)>& body) {
  double best = 1e30;
  double total = 0;
  while (total < options.seconds) {
    const double spent = run_threads(options.threads, body);
    best = std::min(best, spent);
    total += spent + 1e-4;
  }
  return best;
}

// Multiply-adds a second of all threads.
double fma_peak(const Options& options) {
  constexpr int64_t kRounds = 2000000;
  std::vector<double> work(static_cast<size_t>(options.threads));
  const double seconds = best_seconds(
      options, [&](int t) { work[static_cast<size_t>(t)] = roof_fma_avx512(kRounds) * kRounds; });
  double sum = 0;
  for (const double w : work) sum += w;
  return sum / seconds;
}

// Bytes a second of all threads, from memory far larger than the caches.
double read_bandwidth(const Options& options) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  auto buffer = Buffer::allocate(kBytes);
  if (!buffer) std::exit(1);
  std::memset(buffer->data(), 1, kBytes);
  const int64_t share = kBytes / options.threads / 512 * 512;
  std::atomic<int64_t> sink{0};
  const double seconds = best_seconds(
      options, [&](int t) { sink += roof_read_avx512(buffer->data() + t * share, share); });
  return static_cast<double>(share * options.threads) / seconds;
}

struct Shape {
  const char* name;
  int num_heads;
  int num_kv_heads;
  int head_dim;
};

// Layers of one shape with their caches and one set of queries; runs them in order.
class Workload {
 public:
  Workload(const Options& options, const Shape& shape, int64_t num_computed, int32_t query_len,
           int layers)
      : options_(options), layers_(layers), next_(static_cast<size_t>(layers)) {
    const KvLayout layout{options.cache, 16, shape.num_kv_heads, shape.head_dim, layers};
    const int64_t blocks = (num_computed + query_len + 15) / 16;
    for (int64_t i = 0; i < blocks; ++i) table_.push_back(static_cast<int32_t>(i * 7919 % blocks));
    // 7919 is prime: a permutation unless it divides the number of blocks.
    sequence_ = {0, query_len, num_computed, table_.data()};
    memory_ = std::move(*Buffer::allocate(static_cast<size_t>(layout.block_bytes() * blocks)));
    fill(layout);
    width_ = int64_t{shape.num_heads} * shape.head_dim;
    q_.assign(static_cast<size_t>(query_len * width_), 0.01f);
    out_.resize(q_.size());
    plan_gqa_attention(
        {{&sequence_, 1}, shape.num_heads, shape.num_kv_heads, shape.head_dim, options.threads},
        plan_);
    workspace_ = std::move(*Buffer::allocate(static_cast<size_t>(plan_.workspace_bytes) + 64));
    scratch_stride_ = (plan_.scratch_bytes + 4095) / 4096 * 4096;
    scratch_ = std::move(*Buffer::allocate(static_cast<size_t>(scratch_stride_ * options.threads)));
    args_ = {q_.data(), width_, out_.data(), width_, shape.num_heads, 0.125f, DType::kF32};
    args_.sequences = &sequence_;
    args_.workspace = workspace_.as<float>();
    layout_ = layout;
    pool_bytes_ = layout.block_bytes() * blocks;
  }

  double run() {
    return best_seconds(options_, [this](int thread) {
      if (thread == 0) {
        for (auto& counter : next_) counter.next.store(0);
        started_.fetch_add(1);
      } else {
        const int64_t want = rounds_[thread] + 1;
        while (started_.load() < want) std::this_thread::yield();
      }
      rounds_[thread] = started_.load();
      run_layers(thread);
    });
  }

  double bytes() const { return static_cast<double>(pool_bytes_); }
  double multiply_adds() const { return plan_.multiply_adds * layers_; }

 private:
  struct alignas(64) Counter {
    std::atomic<int64_t> next{0};
  };

  void fill(const KvLayout& layout) {
    const uint32_t ones = layout.dtype == DType::kF16    ? 0x2c002c00u
                          : layout.dtype == DType::kBF16 ? 0x3d803d80u
                          : layout.dtype == DType::kI8   ? 0x3d7f3d7fu
                                                         : 0x3d800000u;
    auto* words = memory_.as<uint32_t>();
    for (size_t i = 0; i < memory_.size() / 4; ++i) words[i] = ones;
  }

  void run_layers(int thread) {
    const AttentionKernels& kernels = attention_kernels(options_.isa);
    std::byte* scratch = scratch_.data() + thread * scratch_stride_;
    for (int layer = 0; layer < layers_; ++layer) {
      AttentionArgs args = args_;
      args.cache = kv_layer_view(layout_, layer, memory_.data());
      const auto count = static_cast<int64_t>(plan_.items.size());
      auto& next = next_[static_cast<size_t>(layer)].next;
      for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
        kernels.run_item(args, plan_.items[static_cast<size_t>(i)], scratch);
      }
      if (thread != 0) continue;  // the results do not matter here: no barrier before the merge
      for (const AttentionMerge& merge : plan_.merges) kernels.merge(args, merge, scratch);
    }
  }

  Options options_;
  int layers_;
  std::vector<Counter> next_;
  std::vector<int32_t> table_;
  AttentionSequence sequence_;
  int64_t pool_bytes_ = 0;
  Buffer memory_;
  int64_t width_ = 0;
  std::vector<float> q_;
  std::vector<float> out_;
  GqaPlan plan_;
  Buffer workspace_;
  Buffer scratch_;
  int64_t scratch_stride_ = 0;
  AttentionArgs args_;
  KvLayout layout_;
  std::atomic<int64_t> started_{0};
  int64_t rounds_[256] = {};
};

constexpr Shape kShapes[] = {{"9/3 heads of 64 (SmolLM2)", 9, 3, 64},
                             {"32/8 heads of 64 (1.2B Llama)", 32, 8, 64},
                             {"32/8 heads of 128 (8B Llama)", 32, 8, 128}};

void run(const Options& options) {
  const bool has_roofs = detect_cpu_features().avx512;
  const double peak = has_roofs ? fma_peak(options) : 0;
  const double bandwidth = has_roofs ? read_bandwidth(options) : 0;
  std::printf("%d threads, %s, cache %s; FMA peak %.1f G/s, read bandwidth %.1f GB/s\n",
              options.threads, attention_kernels(options.isa).name,
              std::string(name_of(options.cache)).c_str(), peak * 1e-9, bandwidth * 1e-9);
  for (const Shape& shape : kShapes) {
    for (const int64_t depth : {256, 1024, 4096, 16384}) {
      Workload probe(options, shape, depth - 1, 1, 1);
      const int layers = static_cast<int>(std::clamp(1e8 / probe.bytes(), 1.0, 30.0));
      Workload decode(options, shape, depth - 1, 1, layers);
      const double seconds = decode.run();
      std::printf("decode  %-30s depth %5ld: %6.1f GB/s %3.0f%% of bandwidth, %7.1f us/layer\n",
                  shape.name, depth, decode.bytes() / seconds * 1e-9,
                  bandwidth > 0 ? 100 * decode.bytes() / seconds / bandwidth : 0.0,
                  seconds / layers * 1e6);
    }
    for (const int prompt : {128, 512, 2048}) {
      Workload prefill(options, shape, 0, prompt, 2);
      const double seconds = prefill.run();
      std::printf("prefill %-30s %5d tokens: %6.1f G multiply-adds/s %3.0f%% of peak\n", shape.name,
                  prompt, prefill.multiply_adds() / seconds * 1e-9,
                  peak > 0 ? 100 * prefill.multiply_adds() / seconds / peak : 0.0);
    }
  }
}

Options parse(int argc, char** argv) {
  Options options;
  options.isa = available_isas(detect_cpu_features()).back();
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--threads") {
      options.threads = std::clamp(std::atoi(value.c_str()), 1, 256);
    } else if (flag == "--seconds") {
      options.seconds = std::atof(value.c_str());
    } else if (flag == "--isa") {
      const auto isa = resolve_isa(value, detect_cpu_features());
      if (!isa) {
        std::fprintf(stderr, "%s\n", isa.error().message.c_str());
        std::exit(1);
      }
      options.isa = *isa;
    } else if (flag == "--cache" && parse_dtype(value)) {
      options.cache = *parse_dtype(value);
    } else {
      std::fprintf(stderr, "unknown option %s %s: see the head of attention_bench.cc\n", argv[i],
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
