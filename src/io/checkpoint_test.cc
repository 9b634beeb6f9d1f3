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

TEST(Checkpoint, OpensAConfigurationAlone) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  EXPECT_FALSE(Checkpoint::open(folder.path()));
  const auto checkpoint = Checkpoint::open_config(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->tensors().empty());
  EXPECT_TRUE(read_model_config(*checkpoint));
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
                "Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, Glm4MoeForCausalLM, "
                "DeepseekV3ForCausalLM, DeepseekV32ForCausalLM, GlmMoeDsaForCausalLM");
}

TEST(Checkpoint, RopeDivisorsAreRead) {
  const TempFolder folder;
  GgufBuilder builder = testing::small_llama();
  builder.tensor("token_embd.weight", 0, {64, 5}, 5 * 256).tensor("rope_freqs.weight", 0, {9}, 36);
  const std::string file = folder.write("m.gguf", builder.build());
  EXPECT_EQ(read_model_config(*Checkpoint::open(file)).error().message,
            file + ": rope_freqs.weight: found 9 values, expected 8 (half the rotary dimensions)");
}

// What only tensors tell: which layers have an indexer, and that the router has a bias.
TEST(Checkpoint, TensorsOfSparseModelsAreLookedAt) {
  const TempFolder folder;
  GgufBuilder builder;
  builder.pair("general.architecture", 8).string("glm-dsa");
  const std::pair<const char*, uint32_t> numbers[] = {{"block_count", 4},
                                                      {"nextn_predict_layers", 1},
                                                      {"context_length", 64},
                                                      {"embedding_length", 64},
                                                      {"feed_forward_length", 64},
                                                      {"attention.head_count", 2},
                                                      {"attention.head_count_kv", 1},
                                                      {"attention.q_lora_rank", 32},
                                                      {"attention.kv_lora_rank", 32},
                                                      {"attention.key_length", 48},
                                                      {"attention.value_length", 32},
                                                      {"attention.key_length_mla", 48},
                                                      {"attention.value_length_mla", 32},
                                                      {"rope.dimension_count", 16},
                                                      {"attention.indexer.head_count", 4},
                                                      {"attention.indexer.key_length", 32},
                                                      {"attention.indexer.top_k", 8},
                                                      {"expert_count", 4},
                                                      {"expert_used_count", 2},
                                                      {"expert_feed_forward_length", 32},
                                                      {"expert_shared_count", 1},
                                                      {"leading_dense_block_count", 1}};
  for (const auto& [name, value] : numbers) {
    builder.pair("glm-dsa." + std::string(name), 4).number<uint32_t>(value);
  }
  builder.pair("glm-dsa.attention.layer_norm_rms_epsilon", 6).number<float>(1e-5f);
  builder.tensor("token_embd.weight", 0, {64, 5}, 4 * 64 * 5);
  for (const char* block : {"0", "1", "2", "3"}) {
    const std::string prefix = "blk." + std::string(block) + ".";
    builder.tensor(prefix + "attn_norm.weight", 0, {64}, 4 * 64);
    if (*block == '0' || *block == '2') {
      builder.tensor(prefix + "indexer.attn_k.weight", 0, {64, 32}, 4 * 64 * 32);
    }
    if (*block == '1') builder.tensor(prefix + "exp_probs_b.bias", 0, {4}, 4 * 4);
  }
  // Names that are no blocks' are no more than names.
  builder.tensor("blk.99999999999999999999.attn_norm.weight", 0, {4}, 4 * 4);
  builder.tensor("blk.7000000000.indexer.attn_k.weight", 0, {4}, 4 * 4);
  const std::string file = folder.write("m.gguf", builder.build());
  const auto checkpoint = Checkpoint::open(file);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto config = read_model_config(*checkpoint);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->num_mtp_layers, 1);
  EXPECT_EQ(config->indexer.value().is_full, (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_TRUE(config->moe.value().correction_bias);
  EXPECT_EQ(config->moe->is_sparse, (std::vector<uint8_t>{0, 1, 1}));
  EXPECT_TRUE(config->tie_word_embeddings);
}

TEST(Checkpoint, TheSparseSeedOfTheFuzzTestIsAccepted) {
  const auto checkpoint =
      Checkpoint::open(std::string(MILLRACE_TEST_DATA) + "/fuzz/gguf/sparse.gguf");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto config = read_model_config(*checkpoint);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->indexer.value().topk, 16);
}

}  // namespace
}  // namespace millrace
