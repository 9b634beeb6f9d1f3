// The matmul kernels against the roofs of this machine, measured in the same run: arithmetic peaks
// by loops in registers, read bandwidth by a streaming sum over memory far larger than the caches.
//
//   kernel_bench [--threads N] [--isa NAME] [--format NAME] [--quick]
//
// Prefill shapes: G multiply-adds a second, and the share of the peak of the instruction that the
// kernel is made of. Decode shapes: GB/s of weights, and the share of the read bandwidth. Each
// figure is the best of several runs, and the roof is measured again beside it.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/matmul_roofs.h"
#include "tensor/packing.h"

namespace millrace {
namespace {

// CPU time of this thread: other work on the machine hardly disturbs it.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Runs body(thread) on `threads` threads at once; the mean seconds of CPU that they took (threads
// share items by a counter, so on a busy machine one does more than another).
double run_threads(int threads, const std::function<void(int)>& body) {
  std::atomic<int> ready{0};
  std::vector<double> seconds(static_cast<size_t>(threads));
  const auto run = [&](int t) {
    ready.fetch_add(1);
    while (ready.load() != threads) {
    }
    const double begin = thread_seconds();
    body(t);
    seconds[static_cast<size_t>(t)] = thread_seconds() - begin;
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
  run(0);
  for (std::thread& other : others) other.join();
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / threads;
}

struct Roofs {
  double int8 = 0;  // multiply-adds a second
  double fma = 0;
  double bf16 = 0;
  double read = 0;  // bytes a second
};

double best_rate(int threads, int runs, double work, const std::function<void(int)>& body) {
  double best = 0;
  for (int i = 0; i < runs; ++i) best = std::max(best, work / run_threads(threads, body));
  return best;
}

Roofs measure_roofs(int threads, const Buffer& memory, bool bf16) {
  constexpr int64_t kRounds = 2'000'000;
  Roofs roofs;
  const auto peak = [&](double (*loop)(int64_t)) {
    const double work = loop(1) * static_cast<double>(kRounds) * threads;
    return best_rate(threads, 3, work, [&](int) { loop(kRounds); });
  };
  roofs.int8 = peak(roof_int8_avx512vnni);
  roofs.fma = peak(roof_fma_avx512);
  if (bf16) roofs.bf16 = peak(roof_bf16_avx512bf16);
  const int64_t part = static_cast<int64_t>(memory.size()) / threads / 4096 * 4096;
  roofs.read = best_rate(threads, 3, static_cast<double>(part * threads),
                         [&](int t) { roof_read_avx512(memory.data() + t * part, part); });
  return roofs;
}

struct Case {
  WeightFormat format;
  ActivationKind activations;
};

struct Options {
  int threads = 1;
  std::optional<std::string> isa;
  std::optional<WeightFormat> format;
  bool quick = false;
};

// A matmul over `copies` matrices of random panels (as many as make decode read memory).
class Bench {
 public:
  Bench(const MatmulKernels& kernels, const Case& what, int64_t rows, int64_t n, int64_t k,
        Buffer& memory)
      : kernels_(kernels), rows_(rows) {
    matrix_ = *packed_layout(what.format, n, k);
    matrix_.panels = memory.data();
    copies_ = std::max<int64_t>(1, static_cast<int64_t>(memory.size()) / matrix_.total_bytes());
    std::vector<float> x(static_cast<size_t>(rows * k));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i * 2654435761u % 1000) - 500.0f;
    input_ = *Buffer::allocate(static_cast<size_t>(rows * packed_row_bytes(what.activations, k)));
    out_ = *Buffer::allocate(static_cast<size_t>(rows * n * 4));
    args_.kernels = &kernels_;
    args_.input = packed_activations(kernels, what.activations, rows, k, input_.data());
    args_.out = out_.as<float>();
    args_.out_stride = n;
    pack_activations(kernels, x.data(), k, 0, rows, args_.input);
  }

  int64_t bytes() const { return matrix_.total_bytes(); }

  // Seconds for one matmul over each of `copies` matrices.
  double run(int threads, int64_t copies) {
    args_.weight = &matrix_;
    const MatmulPlan plan = plan_matmul(args_, threads);
    std::vector<Buffer> scratch;
    for (int t = 0; t < threads; ++t) {
      scratch.push_back(*Buffer::allocate(static_cast<size_t>(plan.scratch_bytes)));
      std::memset(scratch.back().data(), 0, scratch.back().size());
    }
    std::vector<std::atomic<int64_t>> next(static_cast<size_t>(copies));
    return run_threads(threads, [&](int t) {
      for (int64_t copy = 0; copy < copies; ++copy) {
        PackedMatrix matrix = matrix_;
        matrix.panels += copy % copies_ * matrix.total_bytes();
        MatmulArgs args = args_;
        args.weight = &matrix;
        while (true) {
          const int64_t item = next[static_cast<size_t>(copy)].fetch_add(1);
          if (item >= plan.num_items) break;
          matmul_run_items(args, plan, item, item + 1, scratch[static_cast<size_t>(t)].data());
        }
      }
    });
  }

  int64_t copies() const { return copies_; }

 private:
  const MatmulKernels& kernels_;
  int64_t rows_;
  PackedMatrix matrix_;
  int64_t copies_ = 1;
  Buffer input_;
  Buffer out_;
  MatmulArgs args_;
};

double roof_of(const Roofs& roofs, ActivationKind kind) {
  if (kind == ActivationKind::kInt8) return roofs.int8;
  return kind == ActivationKind::kBF16 ? roofs.bf16 : roofs.fma;
}

void bench_case(const MatmulKernels& kernels, const Options& options, const Case& what,
                Buffer& memory) {
  struct Shape {
    int64_t rows, n, k;
  };
  const Shape shapes[] = {{512, 1536, 576},  {512, 576, 1536}, {512, 5632, 2048},
                          {512, 2048, 5632}, {16, 5632, 2048}, {16, 576, 1536},
                          {1, 5632, 2048},   {1, 2048, 5632},  {1, 1536, 576}};
  const bool bf16 = kernels.bf16 != nullptr;
  for (const Shape& shape : shapes) {
    if (options.quick && shape.k > 2048 && shape.rows > 1) continue;
    if (shape.k % info(what.format).block != 0) continue;
    Bench bench(kernels, what, shape.rows, shape.n, shape.k, memory);
    const bool decode = shape.rows <= 16;
    const int64_t copies = decode ? bench.copies() : (shape.n * shape.k < 2'000'000 ? 8 : 1);
    double best = 1e30;
    Roofs roofs;
    for (int i = 0; i < (options.quick ? 3 : 6); ++i) {
      best = std::min(best, bench.run(options.threads, copies) / static_cast<double>(copies));
      if (i % 3 != 0) continue;
      const Roofs again = measure_roofs(options.threads, memory, bf16);
      roofs = {std::max(roofs.int8, again.int8), std::max(roofs.fma, again.fma),
               std::max(roofs.bf16, again.bf16), std::max(roofs.read, again.read)};
    }
    const double macs = static_cast<double>(shape.rows * shape.n * shape.k) / best;
    const double bytes = static_cast<double>(bench.bytes()) / best;
    std::printf(
        "%-5s %-5s %4ld x %5ld x %5ld  %8.1f GMAC/s %5.1f%% of %5.1f   %6.1f GB/s %5.1f%% of "
        "%4.1f\n",
        std::string(name_of(what.format)).c_str(),
        what.activations == ActivationKind::kInt8   ? "int8"
        : what.activations == ActivationKind::kBF16 ? "bf16"
                                                    : "f32",
        static_cast<long>(shape.rows), static_cast<long>(shape.n), static_cast<long>(shape.k),
        macs / 1e9, 100 * macs / roof_of(roofs, what.activations),
        roof_of(roofs, what.activations) / 1e9, bytes / 1e9, 100 * bytes / roofs.read,
        roofs.read / 1e9);
    std::fflush(stdout);
  }
}

// Packing of checkpoint rows into panels on one thread.
void bench_packing(WeightFormat format, Buffer& memory) {
  const int64_t k = 2048;
  const int64_t n = 4096;
  PackedMatrix matrix = *packed_layout(format, n, k);
  const int64_t bytes = n * row_bytes(format, k);
  const std::vector<PackSource> sources = {{.format = format, .data = memory.data(), .n = n}};
  double best = 1e30;
  for (int i = 0; i < 4; ++i) {
    const double begin = thread_seconds();
    pack_panels(sources, matrix, 0, matrix.num_panels(), memory.data() + (size_t{128} << 20));
    best = std::min(best, thread_seconds() - begin);
  }
  std::printf("%-5s packing  %6.2f GB/s of checkpoint\n", std::string(name_of(format)).c_str(),
              static_cast<double>(bytes) / best / 1e9);
}

int run(const Options& options) {
  const CpuFeatures features = detect_cpu_features();
  const Result<Isa> isa = resolve_isa(options.isa, features);
  if (!isa) {
    std::fprintf(stderr, "kernel_bench: %s\n", isa.error().message.c_str());
    return 1;
  }
  if (!features.avx512_vnni) {
    std::fprintf(stderr,
                 "kernel_bench: the roofs are measured with AVX-512 VNNI, which this CPU "
                 "does not have\n");
    return 1;
  }
  const MatmulKernels& kernels = matmul_kernels(*isa, features.avx512_bf16);
  std::printf("%s, %d thread(s)\n", kernels.name, options.threads);
  Buffer memory = *Buffer::allocate(size_t{256} << 20);
  for (size_t i = 0; i + 4 <= memory.size(); i += 4) {
    // Finite halves and floats wherever a kernel may read one.
    const uint32_t word =
        0x2c2c2c2cu ^ (static_cast<uint32_t>(i * 2654435761u >> 16) & 0x03030303u);
    std::memcpy(memory.data() + i, &word, 4);
  }
  std::vector<Case> cases = {
      {WeightFormat::kQ8_0, ActivationKind::kInt8}, {WeightFormat::kQ4_0, ActivationKind::kInt8},
      {WeightFormat::kQ4_1, ActivationKind::kInt8}, {WeightFormat::kQ4_K, ActivationKind::kInt8},
      {WeightFormat::kQ5_K, ActivationKind::kInt8}, {WeightFormat::kQ6_K, ActivationKind::kInt8},
      {WeightFormat::kQ5_0, ActivationKind::kInt8}, {WeightFormat::kQ5_1, ActivationKind::kInt8},
      {WeightFormat::kF16, ActivationKind::kF32},   {WeightFormat::kBF16, ActivationKind::kF32},
      {WeightFormat::kF32, ActivationKind::kF32},   {WeightFormat::kQ8_0, ActivationKind::kF32}};
  if (kernels.bf16 != nullptr) cases.push_back({WeightFormat::kBF16, ActivationKind::kBF16});
  for (int i = 0; i < kNumWeightFormats; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    if (!options.format || format == *options.format) bench_packing(format, memory);
  }
  for (const Case& what : cases) {
    if (options.format && what.format != *options.format) continue;
    bench_case(kernels, options, what, memory);
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--threads" && has_value) {
      options.threads = std::clamp(std::atoi(argv[++i]), 1, 256);
    } else if (arg == "--isa" && has_value) {
      options.isa = argv[++i];
    } else if (arg == "--format" && has_value) {
      options.format = millrace::parse_weight_format(argv[++i]);
    } else if (arg == "--quick") {
      options.quick = true;
    } else {
      std::fprintf(stderr,
                   "usage: kernel_bench [--threads N] [--isa NAME] [--format NAME] [--quick]\n");
      return 1;
    }
  }
  return millrace::run(options);
}
