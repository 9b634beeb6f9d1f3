#include "engine/answer_text.h"

#include <utility>

#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace millrace {
namespace {

class AnswerText final : public TextSink {
 public:
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : detokenizer_(tokenizer), stops_(std::move(stops)) {}

  bool accept(int32_t token, bool may_stop, std::string& text) override {
    const std::string delta = detokenizer_.push(token);
    if (!may_stop) {
      text += delta;
      return false;
    }
    const StopMatcher::Shown shown = stops_.push(delta);
    text += shown.text;
    return shown.stop.has_value();
  }

  void finish(std::string& text) override {
    if (stops_.stopped()) return;
    text += stops_.push(detokenizer_.flush()).text;
    if (!stops_.stopped()) text += stops_.flush();
  }

 private:
  Detokenizer detokenizer_;
  StopMatcher stops_;
};

}  // namespace

TextSinkFactory answer_text(const Tokenizer& tokenizer, std::vector<std::string> stops) {
  return [tokenizer, stops = std::move(stops)]() -> std::unique_ptr<TextSink> {
    return std::make_unique<AnswerText>(tokenizer, stops);
  };
}

}  // namespace millrace
