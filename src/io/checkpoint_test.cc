#include "io/checkpoint.h"

#include <gtest/gtest.h>

#include "io/checkpoint_config.h"
#include "io/safetensors.h"
#include "io/test_files.h"

namespace millrace {
namespace {

using testing::GgufBuilder;
using testing::TempFolder;

constexpr std::string_view kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 4, "intermediate_size": 6,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
  "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "eos_token_id": 2})";

void write_folder(const TempFolder& folder) {
  folder.write("config.json", kConfig);
  SafetensorsWriter writer;
  writer.add("w", DType::kBF16, {2, 3}, std::vector<uint16_t>{1, 2, 3, 4, 5, 6});
  writer.add("ids", DType::kI64, {1}, std::vector<int64_t>{1});
  ASSERT_TRUE(writer.write(folder.file("model.safetensors")));
}

TEST(Checkpoint, OpensAFolderOrItsFile) {
  const TempFolder folder;
  write_folder(folder);
  for (const std::string& path : {folder.path(), folder.file("model.safetensors")}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_FALSE(checkpoint->is_gguf());
    EXPECT_EQ(checkpoint->folder(), folder.path());
    EXPECT_EQ(checkpoint->total_bytes(), 20);
    const auto* w = checkpoint->find("w");
    ASSERT_NE(w, nullptr);
    EXPECT_EQ(w->weight_format(), WeightFormat::kBF16);
    EXPECT_EQ(w->type_name(), "BF16");
    EXPECT_EQ(w->num_elements(), 6);
    checkpoint->release(*w);
    EXPECT_EQ(w->bytes[2], std::byte{2});
    const auto* ids = checkpoint->find("ids");
    EXPECT_EQ(ids->weight_format(), std::nullopt);
    EXPECT_EQ(ids->type_name(), "int64");
  }
}

TEST(Checkpoint, OpensAGgufFileOrItsFolder) {
  const TempFolder folder;
  GgufBuilder builder = testing::small_llama();
  builder.tensor("token_embd.weight", 2, {64, 5}, 5 * 36);
  const std::string file = folder.write("m.gguf", builder.build());
  for (const std::string& path : {folder.path(), file}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_TRUE(checkpoint->is_gguf());
    EXPECT_EQ(checkpoint->folder(), folder.path());
    EXPECT_EQ(checkpoint->find("token_embd.weight")->shape, (std::vector<int64_t>{5, 64}));
    const auto config = read_model_config(*checkpoint);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->vocab_size, 5);
    EXPECT_TRUE(config->tie_word_embeddings);
    EXPECT_TRUE(config->rope.interleaved);
  }
}

TEST(Checkpoint, BadPlacesAreErrors) {
  const TempFolder folder;
  const std::string& path = folder.path();
  EXPECT_EQ(Checkpoint::open(folder.file("none")).error().message,
            folder.file("none") + ": no such file or folder");
  EXPECT_EQ(Checkpoint::open(path).error().message, path + ": no config.json in this folder, and " +
                                                        path + ": no .gguf file in this folder");
  folder.write("config.json", kConfig);
  EXPECT_EQ(Checkpoint::open(path).error().message,
            path + ": no model.safetensors and no model.safetensors.index.json in this folder");
  EXPECT_EQ(Checkpoint::open(folder.file("config.json")).error().message,
            folder.file("config.json") + ": not a GGUF file: it does not begin with \"GGUF\"");
}

TEST(Checkpoint, EndTokensAreTheUnionOfAllDeclared) {
  const TempFolder folder;
  write_folder(folder);
  folder.write("generation_config.json", R"({"eos_token_id": [5, 2, 3]})");
  auto config = read_model_config(*Checkpoint::open(folder.path()));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->eos_token_ids, (std::vector<int64_t>{2, 3, 5}));
  folder.write("generation_config.json", R"({"eos_token_id": 99})");
  config = read_model_config(*Checkpoint::open(folder.path()));
  EXPECT_EQ(
      config.error().message,
      folder.path() + ": generation_config.json: end token: found 99, expected a token below 8");
}

TEST(Checkpoint, ConfigErrorsNameTheFile) {
  const TempFolder folder;
  write_folder(folder);
  folder.write("config.json", R"({"architectures": ["MysteryForCausalLM"]})");
  const auto config = read_model_config(*Checkpoint::open(folder.path()));
  EXPECT_EQ(config.error().message,
            folder.path() +
                ": config.json: field architectures: architecture "
                "\"MysteryForCausalLM\" is not supported; supported: LlamaForCausalLM, "
                "Qwen2ForCausalLM, Qwen3ForCausalLM");
}

TEST(Checkpoint, RopeDivisorsAreRead) {
  const TempFolder folder;
  GgufBuilder builder = testing::small_llama();
  builder.tensor("token_embd.weight", 0, {64, 5}, 5 * 256).tensor("rope_freqs.weight", 0, {9}, 36);
  const std::string file = folder.write("m.gguf", builder.build());
  EXPECT_EQ(read_model_config(*Checkpoint::open(file)).error().message,
            file + ": rope_freqs.weight: found 9 values, expected 8 (half the rotary dimensions)");
}

}  // namespace
}  // namespace millrace
