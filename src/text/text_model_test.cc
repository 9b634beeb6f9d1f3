#include "text/text_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "text/golden_rows.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

// A folder that goes away with the test.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("millrace-text-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

// A tokenizer.json of bytes "a" and "b", two specials, and BOS by the post-processor if asked.
std::string small_tokenizer(bool with_bos) {
  nlohmann::json json = {
      {"version", "1.0"},
      {"added_tokens",
       {{{"id", 3},
         {"content", "<s>"},
         {"special", true},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false}},
        {{"id", 4},
         {"content", "</s>"},
         {"special", true},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false}}}},
      {"pre_tokenizer",
       {{"type", "ByteLevel"},
        {"add_prefix_space", false},
        {"trim_offsets", true},
        {"use_regex", true}}},
      {"decoder",
       {{"type", "ByteLevel"},
        {"add_prefix_space", false},
        {"trim_offsets", true},
        {"use_regex", true}}},
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
  if (with_bos) {
    json["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", nlohmann::json::array()},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {3}}, {"tokens", {"<s>"}}}}}}};
  }
  return json.dump();
}

TEST(TextModel, BosComesExactlyOnce) {
  struct Case {
    bool post_processor;
    std::optional<bool> flag;
    Ids plain;
  };
  for (const Case& c : {Case{false, {}, {2}}, Case{false, false, {2}}, Case{false, true, {3, 2}},
                        Case{true, {}, {3, 2}}, Case{true, true, {3, 2}}}) {
    TokenizerConfig config;
    config.special_tokens["bos_token"] = "<s>";
    config.add_bos_token = c.flag;
    const auto model = TextModel::from_json(small_tokenizer(c.post_processor), config);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->encode_prompt("ab").value(), c.plain);
    EXPECT_EQ(model->encode_prompt("<s>ab").value(), (Ids{3, 2}));
  }
  // The post-processor is enough: no configuration names BOS.
  const auto bare = TextModel::from_json(small_tokenizer(true), {});
  EXPECT_EQ(bare->encode_prompt("").value(), Ids{3});
}

TEST(TextModel, GoldenTokenizersKnowTheirBos) {
  // DeepSeek's configuration asks for BOS though its tokenizer.json has no post-processor for it.
  EXPECT_EQ(golden::tokenizer("deepseek_v3")->encode_prompt("Hi").value().front(), 0);
  for (const char* name : {"qwen3", "smollm2"}) {
    const TextModel& model = *golden::tokenizer(name);
    EXPECT_EQ(model.encode_prompt("Hi").value(), model.tokenizer().encode("Hi").value()) << name;
  }
}

TEST(TextModel, OpensAFolderAndUnitesItsEndTokens) {
  const Folder folder;
  folder.write("tokenizer.json", small_tokenizer(false));
  folder.write("tokenizer_config.json",
               R"({"eos_token": {"content": "</s>"}, "bos_token": "<s>", "unk_token": null,
                   "chat_template": [{"name": "default", "template": "plain"},
                                     {"name": "tool_use", "template": "tools"}]})");
  folder.write("config.json", R"({"eos_token_id": 1})");
  folder.write("generation_config.json", R"({"eos_token_id": [4, 2]})");
  const auto model = TextModel::open(folder.path());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->end_ids(), (Ids{1, 2, 4}));
  EXPECT_EQ(model->source(), "tokenizer.json");
  EXPECT_EQ(model->chat_template().value().render({}).value(), "plain");
  EXPECT_EQ(model->chat_template(true).value().render({}).value(), "tools");

  folder.write("chat_template.jinja", "own file {{ eos_token }}");
  EXPECT_EQ(TextModel::open(folder.path())->chat_template()->render({}).value(), "own file </s>");
}

TEST(TextModel, OpensTheFolderOfAFileOfWeights) {
  const Folder folder;
  folder.write("tokenizer.json", small_tokenizer(false));
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    const auto model = TextModel::open(folder.path() + "/" + name);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->tokenizer().vocabulary_size(), 5);
    EXPECT_FALSE(model->has_chat_template());
  }
}

// A post-processor that leaves nothing of the text.
TEST(TextModel, APostProcessorMayReturnNothing) {
  nlohmann::json json = nlohmann::json::parse(small_tokenizer(true));
  json["post_processor"]["single"] = nlohmann::json::array();
  const auto model = TextModel::from_json(json.dump(), {});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->tokenizer().encode("ab", {.add_special_tokens = true}).value(), Ids{});
  EXPECT_EQ(model->encode_prompt("ab").value(), Ids{2});
}

TEST(TextModel, ErrorsNameTheFile) {
  const Folder folder;
  const auto error = [&] {
    const auto model = TextModel::open(folder.path());
    return model ? std::string("no error") : model.error().message;
  };
  EXPECT_NE(error().find("no tokenizer.json"), std::string::npos);
  folder.write("tokenizer.json", "{");
  EXPECT_NE(error().find("tokenizer.json: not a usable tokenizer.json"), std::string::npos);
  folder.write("tokenizer.json", small_tokenizer(false));
  EXPECT_EQ(error(), "no error");
  EXPECT_NE(
      TextModel::open(folder.path())->chat_template().error().message.find("no chat template"),
      std::string::npos);
  folder.write("tokenizer_config.json", "[1]");
  EXPECT_NE(error().find("tokenizer_config.json: a array"), std::string::npos) << error();
  folder.write("tokenizer_config.json", R"({"eos_token": 7})");
  EXPECT_NE(error().find("eos_token is a number"), std::string::npos) << error();
  folder.write("tokenizer_config.json", R"({"chat_template": {"a": 1}})");
  EXPECT_NE(error().find("chat_template must be"), std::string::npos) << error();
  folder.write("tokenizer_config.json", "{}");
  folder.write("generation_config.json", R"({"eos_token_id": "</s>"})");
  EXPECT_NE(error().find("generation_config.json: field eos_token_id: found"), std::string::npos);
  EXPECT_NE(TextModel::open(folder.path() + "/none.gguf").error().message.find("none.gguf"),
            std::string::npos);
}

GgufMetadata small_gguf() {
  GgufMetadata metadata;
  metadata.insert("tokenizer.ggml.model", std::string("gpt2"));
  metadata.insert("tokenizer.ggml.pre", std::string("llama-bpe"));
  metadata.insert("tokenizer.ggml.tokens",
                  GgufArray{std::vector<std::string>{"a", "b", "ab", "<s>", "</s>", "<eot>"}});
  metadata.insert("tokenizer.ggml.token_type", GgufArray{std::vector<int64_t>{1, 1, 1, 3, 3, 3}});
  metadata.insert("tokenizer.ggml.merges", GgufArray{std::vector<std::string>{"a b"}});
  metadata.insert("tokenizer.ggml.bos_token_id", uint64_t{3});
  metadata.insert("tokenizer.ggml.eos_token_id", uint64_t{4});
  metadata.insert("tokenizer.ggml.eot_token_id", uint64_t{5});
  return metadata;
}

TEST(TextModel, ReadsGgufMetadata) {
  GgufMetadata metadata = small_gguf();
  metadata.insert("tokenizer.chat_template", std::string("{{ bos_token }}plain{{ eos_token }}"));
  metadata.insert("tokenizer.chat_template.tool_use", std::string("tools"));
  const auto model = TextModel::from_gguf(metadata);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->end_ids(), (Ids{4, 5}));
  EXPECT_EQ(model->source(), "gpt2/llama-bpe");
  EXPECT_EQ(model->encode_prompt("ab</s>").value(), (Ids{3, 2, 4}));
  EXPECT_EQ(model->chat_template()->render({}).value(), "<s>plain</s>");
  EXPECT_EQ(model->chat_template(true)->render({}).value(), "tools");

  metadata = small_gguf();
  metadata.insert("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(TextModel::from_gguf(metadata)->encode_prompt("ab").value(), Ids{2});
}

TEST(TextModel, GgufWithoutVocabularyOrWithAbsurdIdsIsAnError) {
  EXPECT_NE(TextModel::from_gguf({}).error().message.find("tokenizer.ggml.model"),
            std::string::npos);
  GgufMetadata metadata = small_gguf();
  metadata.insert("tokenizer.ggml.padding_token_id", uint64_t{77});
  EXPECT_NE(TextModel::from_gguf(metadata).error().message.find("padding_token_id is 77"),
            std::string::npos);
}

}  // namespace
}  // namespace millrace
