#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "text/golden_rows.h"

namespace millrace {
namespace {

using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

// The value of `key`, or of `fallback` where the golden data leave it out as being the same.
Ids ids_of(const ordered_json& row, const char* key, const char* fallback = "ids") {
  return row.value(key, row[fallback]).get<Ids>();
}

void check_row(const Tokenizer& tokenizer, const ordered_json& row, bool post_processor) {
  const std::string name =
      row["tokenizer"].get<std::string>() + "/" + row["name"].get<std::string>();
  const std::string text = row["text"];
  const auto ids = tokenizer.encode(text);
  ASSERT_TRUE(ids) << name << ": " << ids.error().message;
  EXPECT_EQ(*ids, ids_of(row, "ids")) << name;
  if (post_processor) {
    EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = true}).value(),
              ids_of(row, "ids_special"))
        << name;
  }
  EXPECT_EQ(tokenizer.encode(text, {.special_text = SpecialText::kPlain}).value(),
            ids_of(row, "ids_no_special"))
      << name;
  const std::string decode = row.value("decode", text);
  EXPECT_EQ(tokenizer.decode(*ids, false).value(), decode) << name;
  EXPECT_EQ(tokenizer.decode(*ids, true).value(), row.value("decode_skip", decode)) << name;
}

TEST(Tokenizer, GivesTheGoldenIds) {
  golden::SkippedRows skipped;
  for (const auto& row : golden::rows("tokenize")) {
    const TextModel* model = golden::tokenizer(row["tokenizer"]);
    if (model) {
      check_row(model->tokenizer(), row, true);
    } else {
      skipped.add();
    }
  }
}

// A GGUF vocabulary as a converter would write it from a tokenizer.json.
struct OwnedVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  std::vector<int32_t> types;

  GgufVocabulary view(const std::string& pre) const {
    GgufVocabulary out;
    out.model = "gpt2";
    out.pre = pre;
    out.tokens = tokens;
    out.merges = merges;
    out.token_types = types;
    return out;
  }
};

OwnedVocabulary vocabulary_of(const std::string& name) {
  const auto json = nlohmann::json::parse(
      golden::read_packed(golden::kFolder + "tokenizers/" + name + "/tokenizer.json.gz"));
  std::map<int32_t, std::pair<std::string, int32_t>> by_id;
  for (const auto& [token, id] : json["model"]["vocab"].items()) by_id[id] = {token, 1};
  for (const auto& token : json["added_tokens"]) {
    by_id[token["id"]] = {token["content"], token["special"].get<bool>() ? 3 : 4};
  }
  OwnedVocabulary out;
  for (const auto& [id, token] : by_id) {
    // Ids without a token: converters fill the gap with a token that never occurs.
    while (static_cast<int32_t>(out.tokens.size()) < id) {
      out.tokens.push_back("[PAD" + std::to_string(out.tokens.size()) + "]");
      out.types.push_back(5);
    }
    out.tokens.push_back(token.first);
    out.types.push_back(token.second);
  }
  for (const auto& merge : json["model"]["merges"]) {
    out.merges.push_back(merge.is_string()
                             ? merge.get<std::string>()
                             : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return out;
}

TEST(Tokenizer, OfAGgufVocabularyGivesTheGoldenIds) {
  const std::map<std::string, std::string> pre_of = {
      {"smollm2", "smollm"}, {"qwen3", "qwen2"}, {"deepseek_v3", "deepseek-v3"}};
  std::map<std::string, Tokenizer> tokenizers;
  for (const auto& [name, pre] : pre_of) {
    auto tokenizer = Tokenizer::from_gguf(vocabulary_of(name).view(pre));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizers.emplace(name, std::move(*tokenizer));
  }
  for (const auto& row : golden::rows("tokenize")) {
    const auto found = tokenizers.find(row["tokenizer"]);
    if (found != tokenizers.end()) check_row(found->second, row, false);
  }
}

TEST(Tokenizer, EveryPreTokenizerKnowsItsNameAndSplitsDigits) {
  const OwnedVocabulary vocabulary = vocabulary_of("smollm2");
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2", "glm4", "glm5", "chatglm-bpe",
                          "deepseek-v3", "default", ""}) {
    const auto tokenizer = Tokenizer::from_gguf(vocabulary.view(pre));
    ASSERT_TRUE(tokenizer) << pre << ": " << tokenizer.error().message;
    const std::string text = "It's  12345 mills,\n\nshe'LL say 10 \t水车";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text).value(), false).value(), text) << pre;
  }
}

TEST(Tokenizer, SplitsAsThePreTokenizerSays) {
  // A vocabulary of single bytes and a few whole pieces: merging is blocked across splits.
  OwnedVocabulary v;
  for (const char* token : {"1", "2", "3", "4", "12", "123", "34", "1234", "a", "b", "ab", "'", "L",
                            "'L", "'LL", "Ġ", "Ġ1", "Ġa"}) {
    v.tokens.push_back(token);
  }
  v.merges = {"1 2", "12 3", "3 4", "123 4", "a b", "' L", "'L L", "Ġ 1", "Ġ a"};
  const auto pieces = [&](const std::string& pre, const std::string& text) {
    const auto tokenizer = Tokenizer::from_gguf(v.view(pre));
    std::string out;
    const Ids ids = tokenizer.value().encode(text).value();
    for (const int32_t id : ids) {
      out += (out.empty() ? "" : "|") + tokenizer->piece(id);
    }
    return out;
  };
  EXPECT_EQ(pieces("gpt-2", "1234"), "1234");
  EXPECT_EQ(pieces("smollm", "1234"), "1|2|3|4");
  EXPECT_EQ(pieces("qwen2", "1234"), "1|2|3|4");
  for (const char* pre : {"llama-bpe", "glm4", "glm5", "chatglm-bpe", "deepseek-v3", "default"}) {
    EXPECT_EQ(pieces(pre, "1234"), "123|4") << pre;
  }
  EXPECT_EQ(pieces("gpt-2", " 1"), "Ġ1");
  EXPECT_EQ(pieces("smollm", " 1"), "Ġ|1");
  EXPECT_EQ(pieces("llama-bpe", "a'LL"), "a|'LL");
  EXPECT_EQ(pieces("qwen2", " a"), "Ġa");
}

TEST(Tokenizer, RefusesVocabulariesThatDoNotFit) {
  OwnedVocabulary v;
  v.tokens = {"a", "b", "ab"};
  v.merges = {"a b"};
  const auto error = [](const GgufVocabulary& vocabulary) {
    const auto result = Tokenizer::from_gguf(vocabulary);
    return result ? std::string("no error") : result.error().message;
  };
  EXPECT_NE(error(v.view("tekken")).find("\"tekken\""), std::string::npos);
  EXPECT_NE(error(v.view("tekken")).find("llama-bpe"), std::string::npos);
  GgufVocabulary odd = v.view("gpt-2");
  const std::vector<int32_t> types = {1};
  odd.token_types = types;
  EXPECT_NE(error(odd).find("token_type has 1 entries"), std::string::npos);
  odd = v.view("gpt-2");
  odd.model = "bert";
  EXPECT_NE(error(odd).find("\"bert\""), std::string::npos);
  v.merges = {"a c"};
  EXPECT_NE(error(v.view("gpt-2")).find("merge 0 has \"c\""), std::string::npos);
  v.merges = {"ab"};
  EXPECT_NE(error(v.view("gpt-2")).find("is not two tokens"), std::string::npos);
  v.merges = {};
  EXPECT_NE(error(v.view("gpt-2")).find("merges is missing"), std::string::npos);
  v.tokens = {"a", "b\xff"};
  EXPECT_NE(error(v.view("gpt-2")).find("not UTF-8"), std::string::npos);
  EXPECT_NE(error(GgufVocabulary{.model = "gpt2"}).find("empty"), std::string::npos);
}

TEST(Tokenizer, OfASentencePieceVocabulary) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  std::vector<float> scores = {0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
    scores.push_back(0);
  }
  const std::map<std::string, float> words = {{"▁", -10}, {"w", -11},    {"a", -12},    {"t", -13},
                                              {"er", -1}, {"wa", -2},    {"ter", -3},   {"e", -14},
                                              {"r", -15}, {"water", -4}, {"▁water", -5}};
  for (const auto& [token, score] : words) {
    tokens.push_back(token);
    types.push_back(1);
    scores.push_back(score);
  }
  GgufVocabulary v;
  v.model = "llama";
  v.tokens = tokens;
  v.token_types = types;
  v.scores = scores;
  const auto tokenizer = Tokenizer::from_gguf(v);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto pieces = [&](const std::string& text) {
    std::vector<std::string> out;
    const Ids ids = tokenizer->encode(text).value();
    for (const int32_t id : ids) out.push_back(tokenizer->piece(id));
    return out;
  };
  EXPECT_EQ(pieces("water"), std::vector<std::string>{"▁water"});
  EXPECT_EQ(pieces("waer"), (std::vector<std::string>{"▁", "wa", "er"}));
  EXPECT_EQ(pieces("é"), (std::vector<std::string>{"▁", "<0xC3>", "<0xA9>"}));
  EXPECT_EQ(pieces("<s>water"), (std::vector<std::string>{"<s>", "▁water"}));
  EXPECT_TRUE(tokenizer->strips_leading_space());
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->token_id("▁water")), " water");
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->token_id("<0xC3>")), "\xC3");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("water é").value(), true).value(), "water é");
  v.scores = {};
  EXPECT_FALSE(Tokenizer::from_gguf(v));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer& tokenizer = golden::tokenizer("qwen3")->tokenizer();
  EXPECT_EQ(tokenizer.vocabulary_size(), 151669);
  EXPECT_EQ(tokenizer.token_id("<|im_end|>"), 151645);
  EXPECT_TRUE(tokenizer.is_special(151645));
  EXPECT_FALSE(tokenizer.is_special(151667));
  EXPECT_EQ(tokenizer.piece(151667), "<think>");
  EXPECT_EQ(tokenizer.piece(151669), "");
  EXPECT_EQ(tokenizer.piece(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(151669), "");
  EXPECT_EQ(tokenizer.token_bytes(-7), "");
  EXPECT_EQ(tokenizer.piece(tokenizer.encode(" water").value().at(0)), "Ġwater");
  EXPECT_EQ(tokenizer.token_bytes(tokenizer.encode(" water").value().at(0)), " water");
  EXPECT_EQ(tokenizer.token_id("no such token"), std::nullopt);
  const Ids absurd = {-1, 99999999, 151645};
  EXPECT_EQ(tokenizer.decode(absurd, false).value(), "<|im_end|>");
}

TEST(Tokenizer, ReadsTheTextOfAddedTokensInThreeWays) {
  const Tokenizer& tokenizer = golden::tokenizer("qwen3")->tokenizer();
  const std::string text = "<|im_end|><think>";
  EXPECT_EQ(tokenizer.encode(text).value(), (Ids{151645, 151667}));
  const Ids plain = tokenizer.encode(text, {.special_text = SpecialText::kPlain}).value();
  EXPECT_EQ(plain.back(), 151667);
  EXPECT_GT(plain.size(), 2u);
  const Ids bare = tokenizer.encode(text, {.special_text = SpecialText::kPlainAllAdded}).value();
  for (const int32_t id : bare) EXPECT_LT(id, 151643);
}

TEST(Tokenizer, MalformedJsonIsAnError) {
  for (const char* json :
       {"", "{", "[]", "{}", "null", "{\"model\": 1}", "{\"model\": {\"type\": \"BPE\"}}",
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}",
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 4294967295}, \"merges\": []}}",
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
        "{\"model\": {\"type\": \"Parrot\", \"vocab\": {\"a\": 0}}}", "\xff\xfe"}) {
    const auto result = Tokenizer::from_json(json);
    ASSERT_FALSE(result) << json;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << json;
  }
  EXPECT_FALSE(Tokenizer::from_json(std::string(100000, '[')));
  const auto unknown =
      Tokenizer::from_json("{\"model\": {\"type\": \"" + std::string(100000, 'x') + "\"}}");
  EXPECT_LT(unknown.error().message.size(), 1000u);
  const std::string good =
      golden::read_packed(golden::kFolder + "tokenizers/smollm2/tokenizer.json.gz");
  for (const size_t cut : {size_t{10}, size_t{1000}, good.size() / 2, good.size() - 1}) {
    EXPECT_FALSE(Tokenizer::from_json(good.substr(0, cut))) << cut;
  }
}

TEST(Tokenizer, TextThatIsNotUtf8IsAnError) {
  const Tokenizer& tokenizer = golden::tokenizer("smollm2")->tokenizer();
  EXPECT_FALSE(tokenizer.encode("ok \xff"));
  EXPECT_EQ(tokenizer.encode("").value(), Ids{});
}

TEST(Tokenizer, TextLongerThanAnyContextIsAnError) {
  const Tokenizer& tokenizer = golden::tokenizer("smollm2")->tokenizer();
  const auto ids = tokenizer.encode(std::string(kMaxTextBytes + 1, 'a'));
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().message.find("16777217 bytes"), std::string::npos) << ids.error().message;
}

}  // namespace
}  // namespace millrace
