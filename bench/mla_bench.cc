// The latent attention kernel against the FMA peak of this machine, or in the numeric class bf16
// that of bf16 dot products, measured in the same run.
//
// Shapes of GLM-5: latent 512, rope key 64. Decode: token after token, its leaves cut into an item
// for each thread. Prefill: one item for all heads of a token. Every token has its own selection.
// Selections are drawn at random, so that rows come from all over a cache that is larger than the
// processor's. Multiply-adds are those of scores and values (latent + rope + latent for each head
// and entry). Time is each thread's CPU time (the mean of the threads), so that a busy machine does
// not blur it; the best of several runs is shown.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "harness.h"
#include "kernels/attention_mla.h"
#include "tensor/mla_layout.h"

namespace millrace::bench {
namespace {

constexpr int kLatent = 512;
constexpr int kRope = 64;

struct Options : Settings {
  DType cache = DType::kF16;
  int heads = 0;  // 0: 16 and 64
  bool bf16_class = false;
};

struct Shape {
  int num_heads = 16;
  int64_t history = 0;  // positions before the first query
  int tokens = 1;
  int64_t selected = 0;  // 0: dense
  bool decode = false;   // leaves are cut, not tokens
};

const MlaKernels& kernels_of(const Options& options) {
  MlaLayerView cache;
  cache.dtype = options.cache;
  cache.latent = kLatent;
  cache.rope = kRope;
  return mla_kernels(options.isa, options.bf16_class, cache);
}

// One layer with a cache of its own, queries and selections.
class Workload {
 public:
  Workload(const Options& options, const Shape& shape) : options_(options), shape_(shape) {
    MlaLayout layout;
    layout.dtype = options.cache;
    layout.latent = kLatent;
    layout.rope = kRope;
    layout = MlaLayout::make(layout, {0});
    const int64_t blocks = (shape.history + shape.tokens + 15) / 16;
    table_.resize(static_cast<size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::mt19937 generator(1);
    std::shuffle(table_.begin(), table_.end(), generator);
    memory_ = std::move(*Buffer::allocate(static_cast<size_t>(layout.block_bytes * blocks)));
    const int64_t root_bytes = 4 * shape.num_heads / 16 * mla_root_floats(kLatent) * 4;
    workspace_ = std::move(*Buffer::allocate(static_cast<size_t>(16 * root_bytes)));
    scratch_stride_ = (mla_scratch_bytes(kLatent, kRope, shape.num_heads) + 4095) / 4096 * 4096;
    scratch_ = std::move(*Buffer::allocate(static_cast<size_t>(scratch_stride_ * options.threads)));
    sequence_ = {0, shape.tokens, shape.history, table_.data()};
    const int64_t q_width = int64_t{shape.num_heads} * (kLatent + kRope);
    const int64_t out_width = int64_t{shape.num_heads} * kLatent;
    std::normal_distribution<float> normal(0.0f, 1.0f);
    q_.resize(static_cast<size_t>(shape.tokens * q_width));
    for (float& x : q_) x = normal(generator);
    out_.resize(static_cast<size_t>(shape.tokens * out_width));
    args_ = {q_.data(), q_width, out_.data(), out_width, shape.num_heads, 0.0625f};
    args_.cache = mla_layer_view(layout, 0, memory_.data(), blocks);
    args_.sequences = &sequence_;
    args_.workspace = workspace_.as<float>();
    fill(generator);
    if (shape.selected > 0) select(generator);
  }

  // Multiply-adds a second.
  double run() {
    const double seconds =
        best_times(
            options_, [this](int thread) { run_items(thread); }, [this] { claims_.reset(); })
            .mean;
    return static_cast<double>(pairs_) * shape_.num_heads * (kLatent + kRope + kLatent) / seconds;
  }

 private:
  void fill(std::mt19937& generator) {
    std::normal_distribution<float> normal(0.0f, 1.0f);
    std::vector<float> row(4 * (kLatent + kRope));
    for (float& x : row) x = normal(generator);
    const int64_t positions = static_cast<int64_t>(table_.size()) * 16;
    for (int64_t slot = 0; slot < positions; ++slot) {
      const float* x = row.data() + slot * 7 % (3 * (kLatent + kRope));
      kernels_of(options_).write({x, 0, x + kLatent, 0, &slot, args_.cache}, 0, 1);
    }
    for (int t = 0; t < shape_.tokens; ++t) pairs_ += shape_.history + t + 1;
  }

  void select(std::mt19937& generator) {
    pairs_ = 0;
    for (int t = 0; t < shape_.tokens; ++t) {
      const int64_t visible = shape_.history + t + 1;
      std::vector<int32_t> all(static_cast<size_t>(visible));
      std::iota(all.begin(), all.end(), 0);
      std::vector<int32_t> chosen;
      std::sample(all.begin(), all.end(), std::back_inserter(chosen), shape_.selected, generator);
      pairs_ += static_cast<int64_t>(chosen.size());
      std::stable_sort(chosen.begin(), chosen.end(),
                       [](int32_t a, int32_t b) { return a / 16 % 16 < b / 16 % 16; });
      for (int leaf = 0; leaf <= 16; ++leaf) {
        leaf_begin_.push_back(static_cast<int32_t>(
            std::ranges::count_if(chosen, [&](int32_t p) { return p / 16 % 16 < leaf; })));
      }
      chosen.resize(static_cast<size_t>(shape_.selected));
      positions_.insert(positions_.end(), chosen.begin(), chosen.end());
    }
    args_.selection = {positions_.data(), shape_.selected, leaf_begin_.data()};
  }

  void run_items(int thread) {
    const MlaKernels& kernels = kernels_of(options_);
    std::byte* scratch = scratch_.data() + thread * scratch_stride_;
    MlaItem item;
    item.num_heads = shape_.num_heads;
    if (shape_.decode) {
      const int parts = options_.threads;
      item.leaf_begin = thread * 16 / parts;
      item.leaf_end = (thread + 1) * 16 / parts;
      const int64_t root = (shape_.num_heads + 15) / 16 * mla_root_floats(kLatent);
      if (parts > 1) item.workspace_offset = thread * root;
      for (item.token = 0; item.token < shape_.tokens; ++item.token) {
        kernels.run_item(args_, item, scratch);
      }
      return;
    }
    claims_.each(0, shape_.tokens, [&](int64_t token) {
      item.token = static_cast<int32_t>(token);
      kernels.run_item(args_, item, scratch);
    });
  }

  Options options_;
  Shape shape_;
  std::vector<int32_t> table_;
  Buffer memory_;
  Buffer workspace_;
  Buffer scratch_;
  int64_t scratch_stride_ = 0;
  AttentionSequence sequence_;
  std::vector<float> q_;
  std::vector<float> out_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> leaf_begin_;
  MlaArgs args_;
  int64_t pairs_ = 0;  // of tokens and entries
  Claims claims_{1};   // of tokens
};

void show(const Options& options, const char* name, const Shape& shape, double peak) {
  Workload workload(options, shape);
  const double rate = workload.run();
  std::printf("%-8s %3d heads, %4d tokens at %6ld, %s: %6.1f G multiply-adds/s", name,
              shape.num_heads, shape.tokens, static_cast<long>(shape.history),
              shape.selected > 0 ? "2048 selected" : "dense        ", rate * 1e-9);
  if (peak > 0) std::printf(" %3.0f%% of peak", 100 * rate / peak);
  std::printf("\n");
  std::fflush(stdout);
}

void run(const Options& options) {
  const double peak = options.bf16_class ? bf16_peak(options) : fma_peak(options);
  std::printf("%d threads, %s, cache %s; %s peak %.1f G/s\n", options.threads,
              kernels_of(options).name, std::string(name_of(options.cache)).c_str(),
              options.bf16_class ? "bf16" : "FMA", peak * 1e-9);
  for (const int heads : {16, 64}) {
    if (options.heads != 0 && options.heads != heads) continue;
    for (const int history : {255, 2047, 16383}) {
      show(options, "decode", {heads, history, 8, 0, true}, peak);
    }
    for (const int history : {4096, 16384, 65536}) {
      show(options, "decode", {heads, history, 8, 2048, true}, peak);
    }
    show(options, "prefill", {heads, 0, 256, 0}, peak);
    show(options, "prefill", {heads, 0, 512, 0}, peak);
    show(options, "prefill", {heads, 2048, 16, 0}, peak);
    show(options, "prefill", {heads, 4096, 32, 2048}, peak);
    show(options, "prefill", {heads, 16384, 32, 2048}, peak);
  }
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  namespace bench = millrace::bench;
  using millrace::DType;
  bench::Options options;
  CLI::App app("The latent attention kernel against the peak of this machine's multiply-adds.",
               "mla_bench");
  // In decode each thread has an equal share of the 16 leaves.
  app.add_option("--threads", options.threads, "Threads")
      ->check(CLI::IsMember({1, 2, 4, 8, 16}))
      ->capture_default_str();
  bench::add_isa(app, options);
  bench::add_seconds(app, options);
  bench::add_dtype(app, "--cache", options.cache,
                   {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}, "Cache of latents");
  app.add_flag(
      "--bf16-class", options.bf16_class,
      "Numeric class bf16, against the peak of bf16 dot products; takes --cache bf16 and a "
      "CPU that has them");
  app.add_option("--heads", options.heads, "Only shapes of this many heads")
      ->check(CLI::IsMember({16, 64}));
  if (const auto exit_code = bench::parse(app, argc, argv)) return *exit_code;
  const bool has_class = millrace::has_bf16_class(options.isa, millrace::detect_cpu_features());
  if (options.bf16_class && (!has_class || options.cache != DType::kBF16)) {
    std::fprintf(stderr,
                 "--bf16-class: takes --cache bf16, --isa avx512vnni and a CPU with bf16 dot "
                 "products\n");
    return 2;
  }
  bench::run(options);
  return 0;
}
