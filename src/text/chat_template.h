// Chat templates (Jinja), rendered as Hugging Face transformers' apply_chat_template renders them.
//
// Templates come with models and are not trusted: work and memory of a render are bounded, and
// everything that goes wrong in one is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"

struct mrt_template;

namespace millrace {

// A chat as a request gives it. Ordered JSON, because templates print objects in their own order.
struct ChatRequest {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;  // a list, or null
  bool add_generation_prompt = true;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // chat_template_kwargs
  // Null-valued keys of messages are dropped, as transformers does; true leaves them in.
  bool keep_nulls = false;
  // What strftime_now shows, seconds since the epoch; the clock's time if not set.
  std::optional<int64_t> now;
};

// Immutable and cheap to copy; any number of threads may use one at once.
class ChatTemplate {
 public:
  // `special_tokens`: an object of the variables bos_token, eos_token, ... that templates print.
  // Error: the template's syntax, with the line.
  static Result<ChatTemplate> compile(
      std::string_view source,
      nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object());

  // Error: the template refuses the chat (the message is its own), or goes beyond its budget.
  Result<std::string> render(const ChatRequest& request) const;

  // Renders and encodes. Text of control tokens inside the request's strings is encoded as plain
  // text, so that a message cannot end its turn or forge another; the template's own control tokens
  // are recognised. No BOS is added beyond what the template writes.
  Result<std::vector<int32_t>> encode(const ChatRequest& request, const Tokenizer& tokenizer) const;

  // A request in the API's form, changed until the template takes it: tool-call arguments as
  // objects or as the JSON text that they came as, nulls dropped or kept. The first form that
  // renders, in this order; the error is that of the first.
  Result<ChatRequest> adapt(const ChatRequest& request) const;

 private:
  ChatTemplate(mrt_template* owned, nlohmann::ordered_json special_tokens);
  Result<std::string> request_text(const ChatRequest& request) const;

  std::shared_ptr<const mrt_template> handle_;
  nlohmann::ordered_json special_tokens_;
};

}  // namespace millrace
