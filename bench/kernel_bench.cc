// The matmul kernels against the roofs of this machine, measured in the same run: arithmetic peaks
// by loops in registers, read bandwidth by a streaming sum over memory far larger than the caches.
//
// Prefill shapes: G multiply-adds a second, and the share of the peak of the instruction that the
// kernel is made of. Decode shapes: GB/s of weights, and the share of the read bandwidth. Each
// figure is the best of several runs, and the roof is measured again beside it.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "harness.h"
#include "kernels/matmul.h"
#include "tensor/packing.h"

namespace millrace::bench {
namespace {

struct Roofs {
  double int8 = 0;  // multiply-adds a second
  double fma = 0;
  double bf16 = 0;
  double read = 0;  // bytes a second
};

Roofs measure_roofs(int threads, const Buffer& memory) {
  Settings settings;
  settings.threads = threads;
  settings.seconds = 0.03;
  return {int8_peak(settings), fma_peak(settings), bf16_peak(settings),
          read_bandwidth(settings, memory)};
}

struct Case {
  WeightFormat format;
  ActivationKind activations;
};

struct Options : Settings {
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
    Claims claims(copies);
    const auto body = [&](int t) {
      for (int64_t copy = 0; copy < copies; ++copy) {
        PackedMatrix matrix = matrix_;
        matrix.panels += copy % copies_ * matrix.total_bytes();
        MatmulArgs args = args_;
        args.weight = &matrix;
        claims.each(copy, plan.num_items, [&](int64_t item) {
          matmul_run_items(args, plan, item, item + 1, scratch[static_cast<size_t>(t)].data());
        });
      }
    };
    return run_threads(threads, body).mean;
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
      const Roofs again = measure_roofs(options.threads, memory);
      roofs = {std::max(roofs.int8, again.int8), std::max(roofs.fma, again.fma),
               std::max(roofs.bf16, again.bf16), std::max(roofs.read, again.read)};
    }
    const double macs = static_cast<double>(shape.rows * shape.n * shape.k) / best;
    const double bytes = static_cast<double>(bench.bytes()) / best;
    std::printf(
        "%-5s %-5s %4ld x %5ld x %5ld  %8.1f GMAC/s %5.1f%% of %5.1f   %6.1f GB/s %5.1f%% of "
        "%4.1f\n",
        std::string(name_of(what.format)).c_str(),
        what.activations == ActivationKind::kInt8       ? "int8"
        : what.activations == ActivationKind::kBF16     ? "bf16"
        : what.activations == ActivationKind::kBF16Wide ? "bf16 by fma"
                                                        : "f32",
        static_cast<long>(shape.rows), static_cast<long>(shape.n), static_cast<long>(shape.k),
        macs / 1e9, percent(macs, roof_of(roofs, what.activations)),
        roof_of(roofs, what.activations) / 1e9, bytes / 1e9, percent(bytes, roofs.read),
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
    pack_panels(sources, matrix, 0, matrix.num_panels(), memory.data() + memory.size() / 2);
    best = std::min(best, thread_seconds() - begin);
  }
  std::printf("%-5s packing  %6.2f GB/s of checkpoint\n", std::string(name_of(format)).c_str(),
              static_cast<double>(bytes) / best / 1e9);
}

void run(const Options& options) {
  const bool with_bf16 = has_bf16_class(options.isa, detect_cpu_features());
  const MatmulKernels& kernels = matmul_kernels(options.isa, with_bf16);
  std::printf("%s, %d thread(s)\n", kernels.name, options.threads);
  Buffer memory = memory_beyond_caches();
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
  if (kernels.bf16 != nullptr) cases.push_back({WeightFormat::kBF16, kernels.bf16->activations});
  for (int i = 0; i < kNumWeightFormats; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    if (!options.format || format == *options.format) bench_packing(format, memory);
  }
  for (const Case& what : cases) {
    if (options.format && what.format != *options.format) continue;
    bench_case(kernels, options, what, memory);
  }
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  namespace bench = millrace::bench;
  bench::Options options;
  CLI::App app("The matmul kernels against the roofs of this machine.", "kernel_bench");
  bench::add_threads(app, options);
  bench::add_isa(app, options);
  app.add_option_function<std::string>(
      "--format",
      [&options](const std::string& name) {
        options.format = millrace::parse_weight_format(name);
        if (!options.format) {
          throw CLI::ValidationError("--format",
                                     "found \"" + name + "\", expected a weight format");
        }
      },
      "Only weights of this format: F32, F16, BF16, Q8_0, Q4_0, ...");
  app.add_flag("--quick", options.quick, "Fewer shapes and runs");
  if (const auto exit_code = bench::parse(app, argc, argv)) return *exit_code;
  bench::run(options);
  return 0;
}
