#include "cli/inspect_report.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/safetensors.h"
#include "io/test_files.h"

namespace millrace {
namespace {

TEST(InspectReport, AddsUpAGgufModel) {
  const testing::TempFolder folder;
  testing::GgufBuilder builder = testing::small_llama();
  builder.tensor("token_embd.weight", 2, {64, 16}, 16 * 36)
      .tensor("output_norm.weight", 0, {64}, 256)
      .tensor("rope_freqs.weight", 0, {8}, 32);
  // Divisors must be above 0: the last tensor becomes eight times 0.747.
  std::vector<std::byte> bytes = builder.build();
  for (size_t i = bytes.size() - 32; i < bytes.size(); ++i) bytes[i] = std::byte{0x3f};
  const auto checkpoint = Checkpoint::open(folder.write("m.gguf", bytes));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto report = inspect(*checkpoint);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->parameters, 16 * 64 + 64);
  EXPECT_EQ(report->kind, "GGUF v3, 1 file");
  EXPECT_EQ(report->formats.at("Q4_0").bytes, 16 * 36);
  EXPECT_EQ(report->formats.at("F32").tensors, 2);
  // One panel of 16 outputs: 4-bit codes and half scales take what they take in the file.
  EXPECT_EQ(report->weight_memory_bytes, 16 * 36 + 4 * 64);
  const auto json = to_json(*report);
  EXPECT_EQ(json["kv_bytes_per_1000_tokens"]["f16"], 1000 * 2 * 2 * 16 * 2);
  EXPECT_EQ(json["vocab_size"], 16);
  EXPECT_EQ(json["rope"]["frequency_divisors"], 8);
  const std::string text = to_text(*report);
  EXPECT_NE(text.find("heads                4 (2 KV heads, head_dim 16)\n"), std::string::npos);
  EXPECT_NE(text.find("KV per 1,000 tokens  f32 250.0 KiB, f16 125.0 KiB"), std::string::npos);
}

TEST(InspectReport, SaysWhatAFolderLacks) {
  const testing::TempFolder folder;
  folder.write("config.json", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 8,
      "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2,
      "max_position_embeddings": 16})");
  SafetensorsWriter writer;
  writer.add("w", DType::kF16, {2, 3}, std::vector<uint16_t>(6));
  ASSERT_TRUE(writer.write(folder.file("model.safetensors")));
  auto report = inspect(*Checkpoint::open(folder.path()));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->kind, "safetensors, 1 file");
  EXPECT_NE(report->tokenizer.find("none: "), std::string::npos) << report->tokenizer;
  EXPECT_NE(report->tokenizer.find("no tokenizer.json"), std::string::npos) << report->tokenizer;
  EXPECT_FALSE(report->chat_template);
  folder.write("tokenizer.json", "{}");
  report = inspect(*Checkpoint::open(folder.path()));
  EXPECT_NE(report->tokenizer.find("none: "), std::string::npos) << report->tokenizer;
  folder.write("tokenizer.json",
               R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  folder.write("tokenizer_config.json",
               R"({"eos_token": "b",
                   "chat_template": [{"name": "default", "template": "x"}]})");
  report = inspect(*Checkpoint::open(folder.path()));
  EXPECT_EQ(report->tokenizer, "tokenizer.json, 2 tokens");
  EXPECT_TRUE(report->chat_template);
  EXPECT_EQ(report->end_tokens, std::vector<int32_t>{1});
}

TEST(InspectReport, SaysWhatAConfigurationAloneTells) {
  const std::string golden = std::string(MILLRACE_TEST_DATA) + "/golden/glm_moe_dsa_shared";
  const auto whole = inspect(*Checkpoint::open(golden));
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_TRUE(whole->has_weights);
  EXPECT_EQ(whole->fault, "");
  const testing::TempFolder folder;
  std::filesystem::copy_file(golden + "/config.json", folder.file("config.json"));
  const auto alone = inspect(*Checkpoint::open_with_or_without_weights(folder.path()));
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_FALSE(alone->has_weights);
  EXPECT_EQ(alone->kind, "config.json, no weights");
  EXPECT_EQ(alone->parameters, whole->parameters);
  ASSERT_EQ(alone->estimates.size(), 3u);
  EXPECT_EQ(alone->estimates[0].format, "BF16");
  EXPECT_EQ(alone->estimates[0].bytes, whole->weight_memory_bytes);
  EXPECT_GT(alone->estimates[0].bytes, alone->estimates[1].bytes);
  EXPECT_GT(alone->estimates[1].bytes, alone->estimates[2].bytes);
  EXPECT_EQ(to_json(*alone)["kv_bytes_per_1000_tokens"],
            to_json(*whole)["kv_bytes_per_1000_tokens"]);
  EXPECT_EQ(to_json(*alone)["published_format"], "bfloat16");
  EXPECT_FALSE(to_json(*alone).contains("weights_in_memory_bytes"));
  const std::string text = to_text(*alone);
  EXPECT_NE(text.find("There are no weights here"), std::string::npos) << text;
  EXPECT_NE(text.find("published in         bfloat16\nweights in memory    BF16 "),
            std::string::npos)
      << text;
}

TEST(InspectReport, SaysWhatKeepsWeightsFromBeingLoaded) {
  const testing::TempFolder folder;
  const auto checkpoint = Checkpoint::open(folder.write(
      "m.gguf", testing::small_llama().tensor("token_embd.weight", 2, {32, 16}, 16 * 18).build()));
  const auto report = inspect(*checkpoint);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_NE(report->fault.find("tensor token_embd.weight has shape [16, 32]"), std::string::npos)
      << report->fault;
  EXPECT_EQ(to_json(*report)["fault"], report->fault);
}

TEST(InspectReport, TellsOfLatentAttentionIndexersAndExperts) {
  const std::string folder = std::string(MILLRACE_TEST_DATA) + "/golden/glm_moe_dsa_shared";
  const auto report = inspect(*Checkpoint::open(folder));
  ASSERT_TRUE(report) << report.error().message;
  const std::string text = to_text(*report);
  for (const char* line :
       {"latent attention     latent 32, rotary 16, query 24 + 16, values 32, query rank 48\n",
        "sparse attention     16 keys, indexers in 3 layers, 16 heads of 32\n",
        "experts              8 in 5 layers, 2 per token, of 32; shared: 32\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  const auto json = to_json(*report);
  EXPECT_EQ(json["indexer"]["topk"], 16);
  EXPECT_EQ(json["moe"]["num_experts"], 8);
}

}  // namespace
}  // namespace millrace
