// Damaged sparse models: every command that loads them prints one line that names what is wrong,
// and exits with 1.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <random>
#include <string>

#include "weights/test_models.h"
#include "weights/test_quantized.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::millrace::testing::ChangedModel;

const std::string kTinyDsa = std::string(MILLRACE_MODEL_DATA) + "/tiny-dsa";

struct Outcome {
  int exit_code = -1;
  std::string error;  // what it wrote to standard error, the log's warnings left out
};

Outcome run_program(const std::string& arguments) {
  const std::string command = fmt::format("MILLRACE_LOG=error '{}' {} 2>&1 >/dev/null </dev/null",
                                          MILLRACE_PROGRAM, arguments);
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char chunk[4096];
  for (size_t count; (count = fread(chunk, 1, sizeof chunk, pipe)) > 0;) {
    outcome.error.append(chunk, count);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

// The commands that load a model's weights, and one that looks at its headers only.
std::vector<std::string> loading_commands(const std::string& folder) {
  return {fmt::format("run '{}' -p Hi --max-tokens 1", folder),
          fmt::format("forward '{0}' --input '{0}/ids.safetensors' --output '{0}/out.safetensors'",
                      folder)};
}
std::string inspect_command(const std::string& folder) {
  return fmt::format("inspect '{}'", folder);
}

void expect_one_line(const std::string& command, const std::string& part, int exit_code = 1) {
  const Outcome outcome = run_program(command);
  EXPECT_EQ(outcome.exit_code, exit_code) << command;
  EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  EXPECT_NE(outcome.error.find(part), std::string::npos)
      << command << "\nexpected: " << part << "\nfound: " << outcome.error;
}

// What else the commands read.
void add_tokenizer_and_ids(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(kTinyDsa + "/" + name, folder + "/" + name, fs::copy_options::overwrite_existing);
  }
  SafetensorsWriter ids;
  ids.add("ids_0", DType::kI32, {3}, std::vector<int32_t>{5, 6, 7});
  ASSERT_TRUE(ids.write(folder + "/ids.safetensors"));
}

struct BadModel {
  const char* name;
  std::function<void(ChangedModel&)> change;
  std::string part;  // of the message
};

constexpr const char* kExpert = "model.layers.2.mlp.experts.3.up_proj.weight";
constexpr const char* kKvB = "model.layers.1.self_attn.kv_b_proj.weight";
constexpr const char* kFp8Module = "model.layers.0.self_attn.q_a_proj";

// One module in block-FP8, in a model that says so.
void quantise_one(ChangedModel& model) {
  std::mt19937 random(1);
  const auto& shape = model.tensors.at(std::string(kFp8Module) + ".weight").shape;
  ::millrace::testing::put_fp8(model, kFp8Module, shape[0], shape[1], random);
  model.config["quantization_config"] = ::millrace::testing::quantization_json(
      {.method = QuantizationMethod::kBlockFp8, .symmetric = true});
}

std::vector<BadModel> bad_models() {
  const std::string scale = std::string(kFp8Module) + ".weight_scale_inv";
  const auto set = [](const char* field, nlohmann::json value) {
    return [field, value](ChangedModel& model) { model.config[field] = value; };
  };
  return {
      {"expert's shape",
       [](ChangedModel& m) {
         m.zeros(kExpert, DType::kBF16, {3, 5});
       },
       fmt::format("tensor {} has shape [3, 5]", kExpert)},
      {"expert's type",
       [](ChangedModel& m) {
         m.zeros(kExpert, DType::kI64, {64, 128});
       },
       std::string(kExpert)},
      {"no kv_b_proj", [](ChangedModel& m) { m.tensors.erase(kKvB); },
       fmt::format("tensor {} is missing", kKvB)},
      {"no scales",
       [scale](ChangedModel& m) {
         quantise_one(m);
         m.tensors.erase(scale);
       },
       scale},
      {"scales' shape",
       [scale](ChangedModel& m) {
         quantise_one(m);
         m.zeros(scale, DType::kF32, {7, 7});
       },
       scale},
      {"groups", set("n_group", 3), "n_group"},
      {"no groups", set("n_group", 0), "n_group"},
      {"experts a token", set("num_experts_per_tok", 9), "num_experts_per_tok"},
      {"index_topk 0", set("index_topk", 0), "index_topk"},
      {"index_topk -1", set("index_topk", -1), "index_topk"},
      {"index_topk absurd", set("index_topk", 1e18), "index_topk"},
      {"no index_topk", [](ChangedModel& m) { m.config.erase("index_topk"); }, "index_topk"},
      {"first layer shared", set("indexer_types", {"shared", "full", "shared", "full", "shared"}),
       "indexer_types"},
      {"kv_lora_rank absurd", set("kv_lora_rank", int64_t{1} << 40), "kv_lora_rank"},
      {"kv_lora_rank text", set("kv_lora_rank", "many"), "kv_lora_rank"},
  };
}

TEST(BadModel, OneLineThatNamesWhatIsWrong) {
  for (const BadModel& bad : bad_models()) {
    SCOPED_TRACE(bad.name);
    ChangedModel model(kTinyDsa);
    ASSERT_FALSE(model.tensors.empty());
    bad.change(model);
    ASSERT_TRUE(model.open());
    add_tokenizer_and_ids(model.path());
    for (const std::string& command : loading_commands(model.path())) {
      expect_one_line(command, bad.part);
    }
    expect_one_line(inspect_command(model.path()), bad.part);
  }
}

// The same folder without a fault, so that the faults are what is reported; and in block-FP8.
TEST(BadModel, TheModelWithoutFaultRuns) {
  for (const bool fp8 : {false, true}) {
    ChangedModel model(kTinyDsa);
    if (fp8) quantise_one(model);
    ASSERT_TRUE(model.open());
    add_tokenizer_and_ids(model.path());
    for (const std::string& command : loading_commands(model.path())) {
      const Outcome outcome = run_program(command);
      EXPECT_EQ(outcome.exit_code, 0) << command << ": " << outcome.error;
    }
    EXPECT_EQ(run_program(inspect_command(model.path())).exit_code, 0);
  }
}

// There is nothing wrong with a config.json alone, but nothing to run either.
TEST(BadModel, WithoutWeightsIsInspectedButDoesNotRun) {
  const ::millrace::testing::TempFolder folder;
  fs::copy_file(kTinyDsa + "/config.json", folder.file("config.json"));
  add_tokenizer_and_ids(folder.path());
  EXPECT_EQ(run_program(inspect_command(folder.path())).exit_code, 0);
  for (const std::string& command : loading_commands(folder.path())) {
    expect_one_line(command, "no model.safetensors");
  }
  // A shard without an index is half a download, not a folder without weights.
  fs::copy_file(kTinyDsa + "/config.json", folder.file("model-00001-of-00002.safetensors"));
  expect_one_line(inspect_command(folder.path()), "no model.safetensors");
}

TEST(BadModel, APromptInPlaceOfTheModel) {
  expect_one_line("run 'What is gravity?'", "if this is a prompt, give it with -p");
  // A model that is there is none, whatever its name.
  const ::millrace::testing::TempFolder folder;
  fs::create_directory(folder.file("a model"));
  const Outcome outcome = run_program(fmt::format("run '{}' -p Hi", folder.file("a model")));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.error.find("prompt"), std::string::npos) << outcome.error;
}

TEST(Usage, WhatIsNotKnownIsNamed) {
  expect_one_line("nonsense", "no command \"nonsense\"", 2);
  expect_one_line("nonsense --help", "no command \"nonsense\"", 2);
  expect_one_line("run tiny-dsa Hello", "Hello; a prompt is given with -p", 2);
  expect_one_line("", "see millrace --help", 2);
}

TEST(BadModel, ShardsThatAreCutOff) {
  const std::string source = ::millrace::testing::golden_folder("glm_moe_dsa_sharded_mtp");
  const std::string shard = "model-00002-of-00002.safetensors";
  const auto whole = fs::file_size(source + "/" + shard);
  for (const uintmax_t size : {uintmax_t{0}, uintmax_t{5}, uintmax_t{100}, whole / 2, whole - 1}) {
    SCOPED_TRACE(fmt::format("{} of {} bytes", size, whole));
    const ::millrace::testing::TempFolder folder;
    fs::copy(source, folder.path(), fs::copy_options::recursive);
    fs::permissions(folder.file(shard), fs::perms::owner_all, fs::perm_options::add);
    fs::resize_file(folder.file(shard), size);
    add_tokenizer_and_ids(folder.path());
    for (const std::string& command : loading_commands(folder.path())) {
      expect_one_line(command, shard);
    }
    expect_one_line(inspect_command(folder.path()), shard);
  }
}

}  // namespace
}  // namespace millrace
