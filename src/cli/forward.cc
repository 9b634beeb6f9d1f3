#include "cli/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/model_context.h"
#include "cli/output.h"
#include "io/model_path.h"
#include "io/safetensors.h"
#include "runtime/batch_forward.h"
#include "runtime/load_model.h"

namespace millrace {
namespace {

constexpr int64_t kMaxGreedy = int64_t{1} << 20;

struct ForwardFlags {
  std::string model;
  std::string input;
  std::string output;
  std::string dump;
  std::string batch = "all";
  int64_t greedy = 0;
  int64_t chunk = 0;
  EngineFlags engine;
};

// The prompts of a file, by their number.
using Prompts = std::map<int64_t, std::vector<int32_t>>;

Result<std::vector<int32_t>> read_ids(const SafetensorsTensor& tensor, const std::string& path) {
  if (tensor.dtype != DType::kI32 || tensor.shape.size() != 1 || tensor.shape[0] < 1) {
    return fail(
        "{}: tensor {} is {} of {} dimensions; token ids are int32, one dimension, at least "
        "one of them",
        path, tensor.name, name_of(tensor.dtype), tensor.shape.size());
  }
  std::vector<int32_t> ids(static_cast<size_t>(tensor.shape[0]));
  std::memcpy(ids.data(), tensor.bytes.data(), tensor.bytes.size());
  return ids;
}

Result<Prompts> read_prompts(const std::string& path) {
  MR_ASSIGN(const Safetensors file, Safetensors::open(path));
  Prompts prompts;
  for (const auto& [name, tensor] : file.tensors()) {
    constexpr std::string_view kPrefix = "ids_";
    if (!name.starts_with(kPrefix)) continue;
    const std::string number = name.substr(kPrefix.size());
    if (number.empty() || number.size() > 9 ||
        number.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    MR_ASSIGN(prompts[std::stoll(number)], read_ids(tensor, path));
  }
  if (prompts.empty()) return fail("{}: no tensor ids_0, ids_1, ...: nothing to compute", path);
  return prompts;
}

struct DumpChoice {
  bool hidden = false;
  bool topk = false;
};

Result<DumpChoice> parse_dump(const std::string& dump) {
  DumpChoice choice;
  for (size_t begin = 0; begin < dump.size();) {
    const size_t comma = std::min(dump.find(',', begin), dump.size());
    const std::string item = dump.substr(begin, comma - begin);
    if (item == "hidden") {
      choice.hidden = true;
    } else if (item == "topk") {  // only sparse models select keys
      choice.topk = true;
    } else {
      return fail("--dump {}: unknown; choose from hidden, topk", item);
    }
    begin = comma + 1;
  }
  return choice;
}

void add_results(SafetensorsWriter& writer, int64_t number, const PromptResult& result,
                 int64_t vocab_size, int64_t hidden_size) {
  const auto rows = static_cast<int64_t>(result.logits.size()) / vocab_size;
  writer.add(fmt::format("logits_{}", number), DType::kF32, {rows, vocab_size}, result.logits);
  if (!result.greedy.empty()) {
    writer.add(fmt::format("greedy_{}", number), DType::kI32,
               {static_cast<int64_t>(result.greedy.size())}, result.greedy);
  }
  for (size_t layer = 0; layer < result.hidden.size(); ++layer) {
    writer.add(fmt::format("hidden_{}_{}", number, layer), DType::kF32, {rows, hidden_size},
               result.hidden[layer]);
  }
  for (size_t layer = 0; layer < result.topk.size(); ++layer) {
    // No more columns than the prompt has positions.
    const std::vector<int32_t>& all = result.topk[layer];
    const int64_t width = static_cast<int64_t>(all.size()) / rows;
    const int64_t kept = std::min(width, rows);
    std::vector<int32_t> topk;
    for (int64_t row = 0; row < rows; ++row) {
      const auto first = all.begin() + row * width;
      topk.insert(topk.end(), first, first + kept);
    }
    writer.add(fmt::format("topk_{}_{}", number, layer), DType::kI32, {rows, kept}, topk);
  }
}

// Error: a prompt and its continuation do not fit into the context.
Result<> check_lengths(const Prompts& prompts, int64_t greedy, int64_t context) {
  for (const auto& [number, ids] : prompts) {
    if (static_cast<int64_t>(ids.size()) + greedy > context) {
      return fail("ids_{}: {} tokens with --greedy {}; the context is {} tokens", number,
                  ids.size(), greedy, context);
    }
  }
  return {};
}

// Sizes that the flags leave open: a context as long as the prompts need, and a pool that holds all
// of them at once.
Result<> size_for_prompts(const ForwardFlags& flags,
                          const std::vector<std::vector<int32_t>>& prompts, EngineConfig& engine) {
  engine.max_num_seqs = flags.engine.num_seqs_for(
      std::max<int64_t>(engine.max_num_seqs, static_cast<int64_t>(prompts.size())));
  if (!engine.max_model_len) {
    size_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
    engine.max_model_len = static_cast<int64_t>(longest) + flags.greedy;
  }
  if (!engine.num_blocks && !engine.kv_cache_memory) {
    // A pool also holds one sequence of the whole context.
    const int64_t one = (*engine.max_model_len + engine.block_size - 1) / engine.block_size;
    engine.num_blocks = std::max(one, blocks_for_prompts(prompts, flags.greedy, engine.block_size));
  }
  return validate(engine);
}

// The output must not replace what it is computed from: the ids, or a file of the model.
Result<> check_output(const std::string& output, const std::string& input,
                      const std::string& model) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto same = [&](const fs::path& file) {
    return fs::equivalent(output, file, ignored) ||
           fs::equivalent(SafetensorsWriter::partial_name(output), file, ignored);
  };
  bool reads_it = same(input) || same(model);
  if (fs::is_directory(model, ignored)) {
    for (const auto& entry : fs::directory_iterator(model, ignored)) {
      reads_it = reads_it || same(entry.path());
    }
  }
  if (!reads_it) return {};
  return fail("--output {}: is a file that this run reads; choose another name", output);
}

// Error: a token is none of the model's.
Result<> check_ids(const Prompts& prompts, const std::string& path, int64_t vocab_size) {
  for (const auto& [number, ids] : prompts) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= 0 && ids[i] < vocab_size) continue;
      return fail("{}: ids_{}[{}] is {}; the vocabulary has 0 to {}", path, number, i, ids[i],
                  vocab_size - 1);
    }
  }
  return {};
}

Result<> run_forward(const ForwardFlags& flags) {
  MR_ASSIGN(EngineConfig engine, flags.engine.parse(Purpose::kForward));
  MR_ASSIGN(const DumpChoice dump, parse_dump(flags.dump));
  if (flags.batch != "all" && flags.batch != "1") {
    return fail("--batch {}: expected all or 1", flags.batch);
  }
  if (flags.greedy < 0 || flags.greedy > kMaxGreedy) {
    return fail("--greedy {}: expected 0 to {} tokens", flags.greedy, kMaxGreedy);
  }
  if (flags.chunk < 0) {
    return fail("--chunk {}: expected 0 (as many as a step takes) or more tokens", flags.chunk);
  }
  MR_ASSIGN(const Prompts numbered, read_prompts(flags.input));
  std::vector<std::vector<int32_t>> prompts;
  for (const auto& [number, ids] : numbered) prompts.push_back(ids);
  MR_ASSIGN(const std::string path, resolve_model_path(flags.model, model_search_dirs()));
  MR_TRY(check_output(flags.output, flags.input, path));
  MR_ASSIGN(const ModelLimits limits, limits_of(path, engine));
  MR_TRY(check_ids(numbered, flags.input, limits.vocab_size));
  MR_TRY(check_lengths(numbered, flags.greedy, limits.context));
  MR_TRY(size_for_prompts(flags, prompts, engine));

  InterruptScope interrupts;
  ProgressBar progress;
  MR_ASSIGN(LoadedModel model, load_model(path, engine, progress));
  if (dump.topk && !model.config.indexer) {
    log::warning("{}: not a sparse model, so --dump topk adds nothing", path);
  }
  MR_ASSIGN(const auto results, run_batch_forward(*model.runner, prompts,
                                                  {.num_greedy = flags.greedy,
                                                   .chunk = flags.chunk,
                                                   .one_by_one = flags.batch == "1",
                                                   .capture_hidden = dump.hidden,
                                                   .capture_topk = dump.topk,
                                                   .stopped = InterruptScope::interrupted},
                                                  progress));
  SafetensorsWriter writer;
  size_t index = 0;
  for (const auto& [number, ids] : numbered) {
    if (!std::ranges::all_of(results[index].logits, [](float x) { return std::isfinite(x); })) {
      log::warning("{}: ids_{}: some logits are NaN or infinite; check the model's weights", path,
                   number);
    }
    add_results(writer, number, results[index++], model.config.vocab_size,
                model.config.hidden_size);
  }
  return writer.write(flags.output, InterruptScope::interrupted);
}

}  // namespace

void add_forward_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "forward", "Compute logits of given token ids (safetensors in, safetensors out)");
  auto flags = std::make_shared<ForwardFlags>();
  command->add_option("MODEL", flags->model, "Path or name of a model")->required();
  command->add_option("--input", flags->input, "Tensors ids_<i> (int32); others are ignored")
      ->required();
  command->add_option("--output", flags->output, "File to write: logits_<i> and what is asked for")
      ->required();
  command->add_option("--greedy", flags->greedy, "Continue each prompt by N tokens: greedy_<i>");
  command->add_option("--dump", flags->dump,
                      "hidden (hidden_<i>_<layer>), topk (topk_<i>_<layer>, sparse models only)");
  command->add_option("--chunk", flags->chunk,
                      "Tokens of a prompt per step; 0: as many as a step takes");
  command->add_option("--batch", flags->batch, "all: one batch of all prompts; 1: one by one");
  add_engine_flags(*command, flags->engine);
  // Exact, unless something else is asked for.
  const auto describe = [&](const char* option, const char* text) {
    command->get_option(option)->description(text);
  };
  describe("--kv-cache-dtype", "Type of cached keys and values: auto (f32), f32, f16, bf16, int8");
  describe("--indexer-dtype",
           "Type of cached index keys of sparse attention: auto (f32), f32, bf16, int8");
  describe("--activation-quantization",
           "Activations of 4- to 8-bit weights: auto (none), none (exact), int8");
  describe("--max-model-len",
           "Tokens of the longest sequence; default: the longest prompt and --greedy");
  command->footer(
      "In Python, ids.safetensors is made by\n"
      "  safetensors.numpy.save_file({\"ids_0\": numpy.array([1, 2, 3], \"int32\")}, "
      "\"ids.safetensors\")\n"
      "Examples:\n"
      "  millrace forward smollm2 --input ids.safetensors --output logits.safetensors\n"
      "  millrace forward tiny-dsa --input ids.safetensors --output out.safetensors --dump topk");
  command->callback([flags, &exit_code] {
    const Result<> done = run_forward(*flags);
    if (done) return;
    print_error(done.error());
    exit_code = InterruptScope::interrupted() ? kInterruptedExitCode : 1;
  });
}

}  // namespace millrace
