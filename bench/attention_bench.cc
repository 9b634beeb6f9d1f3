// The attention kernel against the roofs of this machine, measured in the same run.
//
// Decode: GB/s of keys and values read by one token at a depth, over enough layers that the caches
// do not hold them, and the share of the read bandwidth. Prefill: G multiply-adds a second of
// causal attention over a prompt, and the share of the fp32 FMA peak. Time is each thread's CPU
// time (the slowest thread counts), so that a busy machine does not blur it; the best of several
// runs is shown.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "attention/gqa_plan.h"
#include "base/buffer.h"
#include "harness.h"

namespace millrace::bench {
namespace {

struct Options : Settings {
  DType cache = DType::kF16;
};

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
      : options_(options), layers_(layers), claims_(layers) {
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
    return best_times(
               options_, [this](int thread) { run_layers(thread); }, [this] { claims_.reset(); })
        .slowest;
  }

  double bytes() const { return static_cast<double>(pool_bytes_); }
  double multiply_adds() const { return plan_.multiply_adds * layers_; }

 private:
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
      claims_.each(layer, static_cast<int64_t>(plan_.items.size()), [&](int64_t i) {
        kernels.run_item(args, plan_.items[static_cast<size_t>(i)], scratch);
      });
      if (thread != 0) continue;  // the results do not matter here: no barrier before the merge
      for (const AttentionMerge& merge : plan_.merges) kernels.merge(args, merge, scratch);
    }
  }

  Options options_;
  int layers_;
  Claims claims_;  // of each layer
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
};

constexpr Shape kShapes[] = {{"9/3 heads of 64 (SmolLM2)", 9, 3, 64},
                             {"32/8 heads of 64 (1.2B Llama)", 32, 8, 64},
                             {"32/8 heads of 128 (8B Llama)", 32, 8, 128},
                             {"64/8 heads of 64", 64, 8, 64}};

void run(const Options& options) {
  const double peak = fma_peak(options);
  const double bandwidth = read_bandwidth(options, memory_beyond_caches());
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
                  percent(decode.bytes() / seconds, bandwidth), seconds / layers * 1e6);
    }
    for (const int prompt : {128, 512, 2048}) {
      Workload prefill(options, shape, 0, prompt, 2);
      const double seconds = prefill.run();
      std::printf("prefill %-30s %5d tokens: %6.1f G multiply-adds/s %3.0f%% of peak\n", shape.name,
                  prompt, prefill.multiply_adds() / seconds * 1e-9,
                  percent(prefill.multiply_adds() / seconds, peak));
    }
  }
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  namespace bench = millrace::bench;
  using millrace::DType;
  bench::Options options;
  options.seconds = 1;
  CLI::App app("The attention kernel against the roofs of this machine.", "attention_bench");
  bench::add_threads(app, options);
  bench::add_isa(app, options);
  bench::add_seconds(app, options);
  bench::add_dtype(app, "--cache", options.cache,
                   {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}, "KV cache");
  if (const auto exit_code = bench::parse(app, argc, argv)) return *exit_code;
  bench::run(options);
  return 0;
}
