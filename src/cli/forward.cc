#include "cli/forward.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "cli/engine_flags.h"
#include "io/safetensors.h"
#include "runtime/batch_forward.h"
#include "runtime/load_model.h"

namespace millrace {
namespace {

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
    return fail("{}: tensor {} is {} of {} dimensions; token ids are int32, one dimension, at least "
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
};

Result<DumpChoice> parse_dump(const std::string& dump) {
  DumpChoice choice;
  for (size_t begin = 0; begin < dump.size();) {
    const size_t comma = std::min(dump.find(',', begin), dump.size());
    const std::string item = dump.substr(begin, comma - begin);
    if (item == "hidden") {
      choice.hidden = true;
    } else if (item != "topk") {  // only sparse models select keys: no layer, nothing to write
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
}

// A pool that holds every prompt of a batch at once, unless the flags give one.
void size_for_prompts(const ForwardFlags& flags, const std::vector<std::vector<int32_t>>& prompts,
                      EngineConfig& engine) {
  if (!engine.num_blocks && !engine.kv_cache_memory) {
    engine.num_blocks = blocks_for_prompts(prompts, flags.greedy, engine.block_size);
  }
  if (flags.engine.max_num_seqs == 0) {
    engine.max_num_seqs = std::max(engine.max_num_seqs, static_cast<int>(prompts.size()));
  }
  if (!engine.max_model_len) {
    size_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
    engine.max_model_len = static_cast<int64_t>(longest) + flags.greedy;
  }
}

Result<> run_forward(const ForwardFlags& flags) {
  MR_ASSIGN(EngineConfig engine, flags.engine.parse(Purpose::kForward));
  MR_ASSIGN(const DumpChoice dump, parse_dump(flags.dump));
  if (flags.batch != "all" && flags.batch != "1") {
    return fail("--batch {}: expected all or 1", flags.batch);
  }
  if (flags.greedy < 0) return fail("--greedy {}: expected 0 or more tokens", flags.greedy);
  if (flags.chunk < 0) return fail("--chunk {}: expected 0 (whole) or more tokens", flags.chunk);
  MR_ASSIGN(const Prompts numbered, read_prompts(flags.input));
  std::vector<std::vector<int32_t>> prompts;
  for (const auto& [number, ids] : numbered) prompts.push_back(ids);
  size_for_prompts(flags, prompts, engine);

  ProgressBar progress;
  MR_ASSIGN(LoadedModel model, load_model(flags.model, engine, progress));
  for (const auto& [number, ids] : numbered) {
    const int64_t needed = static_cast<int64_t>(ids.size()) + flags.greedy;
    if (needed > model.max_model_len) {
      return fail("ids_{}: {} tokens with --greedy {}; the context is {} tokens", number,
                  ids.size(), flags.greedy, model.max_model_len);
    }
  }
  MR_ASSIGN(const auto results,
            run_batch_forward(*model.runner, prompts,
                              {.num_greedy = flags.greedy,
                               .chunk = flags.chunk,
                               .one_by_one = flags.batch == "1",
                               .capture_hidden = dump.hidden},
                              progress));
  SafetensorsWriter writer;
  size_t index = 0;
  for (const auto& [number, ids] : numbered) {
    add_results(writer, number, results[index++], model.config.vocab_size,
                model.config.hidden_size);
  }
  return writer.write(flags.output);
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
  command->add_option("--chunk", flags->chunk, "Tokens of a prompt per step; 0: whole");
  command->add_option("--batch", flags->batch, "all: one batch of all prompts; 1: one by one");
  add_engine_flags(*command, flags->engine);
  command->callback([flags, &exit_code] {
    const Result<> done = run_forward(*flags);
    if (done) return;
    print_error(done.error());
    exit_code = 1;
  });
}

}  // namespace millrace
