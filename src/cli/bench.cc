#include "cli/bench.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "cli/bench_driver.h"
#include "cli/bench_peaks.h"
#include "cli/bench_report.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/model_context.h"
#include "cli/output.h"
#include "io/checkpoint.h"
#include "io/model_path.h"
#include "models/layers.h"
#include "runtime/load_model.h"
#include "weights/checkpoint_sizes.h"

namespace millrace {
namespace {

constexpr int64_t kMaxValue = 1 << 24;

struct BenchFlags {
  std::string model = "smollm2";
  std::vector<int64_t> prompts = {512};
  std::vector<int64_t> generated = {128};
  std::vector<int64_t> depths = {0};
  std::vector<int64_t> batches = {1};
  std::vector<int> threads = {0};
  int repeats = 5;
  bool json = false;
  bool profile = false;
  EngineFlags engine;
};

Result<> check(const char* flag, const std::vector<int64_t>& values, int64_t least,
               int64_t most = kMaxValue) {
  for (const int64_t value : values) {
    if (value < least || value > most) {
      return fail("{} {}: expected {} to {}", flag, value, least, most);
    }
  }
  return {};
}

Result<> check(const BenchFlags& flags) {
  MR_TRY(check("-p", flags.prompts, 0));
  MR_TRY(check("-n", flags.generated, 0));
  MR_TRY(check("-d", flags.depths, 0));
  MR_TRY(check("-b", flags.batches, 1, kMaxNumSeqs));
  MR_TRY(check("-r", {flags.repeats}, 1));
  MR_TRY(check("-t", {flags.threads.begin(), flags.threads.end()}, 0, kMaxThreads));
  return {};
}

std::vector<BenchTest> tests_of(const BenchFlags& flags) {
  std::vector<BenchTest> tests;
  for (const int64_t depth : flags.depths) {
    for (const int64_t batch : flags.batches) {
      for (const int64_t length : flags.prompts) {
        if (length > 0) tests.push_back({false, length, depth, batch});
      }
      for (const int64_t length : flags.generated) {
        if (length > 0) tests.push_back({true, length, depth, batch});
      }
    }
  }
  return tests;
}

// Error: a test does not fit into the model's context, or into a step.
Result<> check_tests(const std::vector<BenchTest>& tests, int64_t context,
                     const EngineConfig& config) {
  const int64_t step = config.max_num_batched_tokens.value_or(kMaxNumSeqs);
  for (const BenchTest& test : tests) {
    if (test.depth + test.length > context) {
      return fail("-d {} {} {} needs {} tokens; the context is {} tokens", test.depth,
                  test.decode ? "-n" : "-p", test.length, test.depth + test.length, context);
    }
    if (test.batch > step) {
      return fail("-b {} needs steps of {} tokens; --max-num-batched-tokens is {}", test.batch,
                  test.batch, step);
    }
  }
  return {};
}

// Context, sequences and pool that the tests need.
Result<> size_for_tests(const std::vector<BenchTest>& tests, EngineConfig& config) {
  int64_t max_tokens = 0;
  int64_t batch = 1;
  for (const BenchTest& test : tests) {
    max_tokens = std::max(max_tokens, test.depth + test.length);
    batch = std::max(batch, test.batch);
  }
  config.max_model_len = max_tokens;
  config.max_num_seqs = static_cast<int>(batch);
  config.num_blocks = BenchDriver::blocks_needed(batch, max_tokens, config.block_size);
  return validate(config);
}

// A folder's name, or a file's without its extension.
std::string model_name(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return fs::path(path).stem().string();
  const fs::path folder = fs::absolute(path, ignored).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

// What the table says of the model; the format decides which peak the prompts are compared with.
Result<BenchModel> describe(const LoadedModel& model, const EngineConfig& engine) {
  BenchModel described;
  if (engine.load_format == LoadFormat::kDummy) {
    described.format = name_of(engine.dummy_format);
  } else {
    MR_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(model.path));
    std::map<std::string, int64_t, std::less<>> parameters;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      parameters[std::string(tensor.type_name())] += num_parameters(tensor);
    }
    const auto most =
        std::max_element(parameters.begin(), parameters.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != parameters.end()) described.format = most->first;
  }
  described.name = fmt::format("{} {}", model_name(model.path), described.format);
  described.bytes = model.weight_bytes;
  described.parameters = model.num_parameters;
  return described;
}

PeakKind peak_kind_of(const BenchModel& model, const Execution& execution) {
  const auto format = parse_weight_format(model.format);
  // Words of 4-bit codes, in checkpoints that are not GGUF.
  const bool codes = model.format == name_of(DType::kI32);
  if ((codes || (format && is_quantized(*format))) && execution.int8_activations) {
    return PeakKind::kInt8;
  }
  if (format == WeightFormat::kBF16 && execution.bf16_class) {
    const Bf16Kernels& kernels = *kernels_of(execution).bf16;
    return kernels.activations == ActivationKind::kBF16 ? PeakKind::kBf16 : PeakKind::kFma;
  }
  return PeakKind::kFma;
}

// Runs one test `repeats` times, after bringing the sequences to its depth and warming up.
Result<std::vector<BenchRun>> run_test(BenchDriver& driver, const BenchTest& test, int repeats,
                                       Progress& progress) {
  const auto advance = [&](int64_t tokens) -> Result<> {
    progress.advance(tokens);
    if (InterruptScope::interrupted()) return fail("stopped");
    return {};
  };
  if (const int64_t missing = driver.missing(test.batch, test.depth); missing > 0) {
    progress.begin(fmt::format("filling the cache to depth {}", test.depth), missing, false);
    const Result<> filled = driver.fill(test.batch, test.depth, advance);
    progress.end();
    MR_TRY(filled);
  }
  const int64_t warm_up = test.decode ? std::min<int64_t>(2, test.length) : test.length;
  progress.begin(fmt::format("{}, batch {}", test.name(), test.batch),
                 test.tokens() * repeats + warm_up * test.batch, false);
  std::vector<BenchRun> runs;
  Result<> done;
  for (int i = -1; i < repeats && done; ++i) {
    const int64_t length = i < 0 ? warm_up : test.length;
    auto run = test.decode ? driver.decode(test.batch, test.depth, length, advance)
                           : driver.prefill(test.batch, test.depth, length, advance);
    if (!run) {
      done = std::unexpected(run.error());
    } else if (i >= 0) {
      runs.push_back(*run);
    }
  }
  progress.end();
  MR_TRY(done);
  return runs;
}

// Where the time of a run went, on stderr: per kind of step, its share, and its rates.
void print_profile(const BenchRun& run) {
  double total = 0;
  for (const auto& [label, profile] : run.profile) total += profile.seconds;
  std::fprintf(stderr, "%-16s %8s %10s %7s %14s %10s\n", "step", "count", "us each", "share",
               "G multiply-adds/s", "GB/s");
  for (const auto& [label, profile] : run.profile) {
    std::fprintf(stderr, "%-16s %8lld %10.1f %6.1f%% %14.1f %10.1f\n", label.c_str(),
                 static_cast<long long>(profile.count),
                 profile.seconds / static_cast<double>(profile.count) * 1e6,
                 profile.seconds / total * 100, profile.cost.multiply_adds / profile.seconds / 1e9,
                 (profile.cost.weight_bytes + profile.cost.cache_bytes) / profile.seconds / 1e9);
  }
}

// Returns the exit code.
Result<int> run_bench(const BenchFlags& flags) {
  MR_TRY(check(flags));
  MR_ASSIGN(EngineConfig config, flags.engine.parse(Purpose::kGenerate));
  const std::vector<BenchTest> tests = tests_of(flags);
  if (tests.empty()) return fail("nothing to measure: -p and -n are 0");
  MR_ASSIGN(const std::string path, resolve_model_path(flags.model, model_search_dirs()));
  MR_ASSIGN(const ModelLimits limits, limits_of(path, config));
  MR_TRY(check_tests(tests, limits.context, config));
  MR_TRY(size_for_tests(tests, config));

  InterruptScope interrupts;
  ProgressBar progress;
  auto rows = nlohmann::ordered_json::array();
  bool has_head = flags.json;
  std::string bounds;
  for (const int threads : flags.threads) {
    config.threads = threads;
    MR_ASSIGN(LoadedModel model, load_model(path, config, progress));
    if (!has_head) MR_TRY(write_stdout(table_head()));
    has_head = true;
    BenchRow row;
    MR_ASSIGN(row.model, describe(model, config));
    const Execution& execution = model.runner->model().execution();
    row.threads = model.threads;
    row.isa = model.isa;
    row.peak_kind = peak_kind_of(row.model, execution);
    MR_ASSIGN(row.peaks, measure_peaks(model.threads, execution.isa, row.peak_kind));
    bounds += fmt::format("{} threads ({}): read bandwidth {:.1f} GB/s", model.threads, model.isa,
                          row.peaks.read_bandwidth / 1e9);
    if (row.peaks.multiply_adds) {
      bounds += fmt::format(", {} {:.0f} G multiply-adds/s", name_of(row.peak_kind),
                            *row.peaks.multiply_adds / 1e9);
    }
    bounds += "\n";
    BenchDriver driver(*model.runner, config.max_num_seqs, *config.max_model_len);
    driver.set_profile(flags.profile);
    for (const BenchTest& test : tests) {
      row.test = test;
      auto runs = run_test(driver, test, flags.repeats, progress);
      if (!runs && !InterruptScope::interrupted()) return std::unexpected(runs.error());
      if (!runs) {
        print_error(runs.error());
        return kInterruptedExitCode;
      }
      row.runs = std::move(*runs);
      if (flags.profile) print_profile(row.runs.back());
      if (flags.json) {
        rows.push_back(to_json(row));
      } else {
        MR_TRY(write_stdout(table_line(row)));
      }
    }
  }
  MR_TRY(write_stdout(
      flags.json
          ? rows.dump(2) + "\n"
          : fmt::format(
                "\nMedians of {} runs ± standard deviation. Bounds measured in this run:\n{}",
                flags.repeats, bounds)));
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("bench", "Measure the speed of a model");
  auto flags = std::make_shared<BenchFlags>();
  command->add_option("MODEL", flags->model, "Path or name of a model")->capture_default_str();
  const auto add_list = [&](const char* name, auto& values, const char* help) {
    command->add_option(name, values, help)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
  };
  add_list("-p,--n-prompt", flags->prompts, "Prompt lengths, 0: no such test");
  add_list("-n,--n-gen", flags->generated, "Decode steps, 0: no such test");
  add_list("-d,--n-depth", flags->depths, "Tokens in the cache before the test");
  add_list("-b,--batch", flags->batches, "Sequences that run at once");
  command->add_option("-r,--repetitions", flags->repeats, "Runs of each test; the median counts")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print JSON instead of a table");
  command->add_flag("--profile", flags->profile,
                    "Print on stderr where the time of each test's last run went");
  add_engine_flags(*command, flags->engine);
  // These follow from the tests.
  for (const char* name :
       {"--threads", "--max-model-len", "--max-num-seqs", "--num-blocks", "--kv-cache-memory"}) {
    command->remove_option(command->get_option(name));
  }
  add_list("-t,--threads", flags->threads, "Numbers of threads; 0: the CPUs of this process");
  command->footer(
      "t/s counts the tokens of all sequences. Decode is compared with the bytes of weights and\n"
      "cache that a step must read over the measured read bandwidth, prompts with the measured\n"
      "peak of the instruction that multiplies.\n"
      "Examples:\n"
      "  millrace bench smollm2\n"
      "  millrace bench smollm2 -p 512 -n 128 -d 0,4096 -b 1,4,16 -t 1,2 --json");
  command->callback([flags, &exit_code] {
    const Result<int> done = run_bench(*flags);
    if (!done) print_error(done.error());
    exit_code = done.value_or(1);
  });
}

}  // namespace millrace
