#include "engine/answer_text.h"

#include <gtest/gtest.h>

#include "text/text_model.h"

namespace millrace {
namespace {

Tokenizer tokenizer() {
  const std::string file = MILLRACE_TEST_DATA "/text/tokenizers/qwen3/tokenizer.json.gz";
  auto model = TextModel::open(file);
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return model->tokenizer();
}

struct Shown {
  std::string text;
  bool stopped = false;
};

Shown feed(TextSink& sink, const std::vector<int32_t>& ids, size_t min_tokens = 0) {
  Shown shown;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (sink.accept(ids[i], i + 1 >= min_tokens, shown.text)) {
      shown.stopped = true;
      return shown;
    }
  }
  sink.finish(shown.text);
  return shown;
}

TEST(AnswerText, StreamsWholeCharactersUpToAStopString) {
  const Tokenizer words = tokenizer();
  const std::string text = "The mill 水車 turns. STOP here 🌊 and there.";
  const std::vector<int32_t> ids = *words.encode(text);
  EXPECT_EQ(feed(*answer_text(words, {})(), ids).text, text);

  const Shown stopped = feed(*answer_text(words, {"nothing", "STOP"})(), ids);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.text, "The mill 水車 turns. ");

  const Shown late = feed(*answer_text(words, {"STOP"})(), ids, ids.size());
  EXPECT_FALSE(late.stopped) << "the stop string came before the minimum";
  EXPECT_EQ(late.text, text);
}

TEST(AnswerText, WhatWasHeldBackIsShownAtTheEnd) {
  const Tokenizer words = tokenizer();
  const std::vector<int32_t> ids = *words.encode("water ST");
  const Shown shown = feed(*answer_text(words, {"STOP"})(), ids);
  EXPECT_FALSE(shown.stopped);
  EXPECT_EQ(shown.text, "water ST");
}

}  // namespace
}  // namespace millrace
