#include "text/chat_template.h"

#include <ctime>

#include "io/json.h"
#include "text/rust_text.h"

namespace millrace {
namespace {

using nlohmann::ordered_json;

// JSON that a request may nest; deeper would overflow the stacks of recursive code.
constexpr int kMaxDepth = 100;

bool deeper_than(const ordered_json& value, int depth) {
  if (!value.is_structured()) return false;
  if (depth == 0) return true;
  for (const ordered_json& item : value) {
    if (deeper_than(item, depth - 1)) return true;
  }
  return false;
}

// Calls `change` for each tool call's arguments field of the messages.
template <typename Change>
bool for_each_arguments(ordered_json& messages, Change change) {
  bool any = false;
  for (ordered_json& message : messages) {
    if (!message.is_object() || !message.contains("tool_calls")) continue;
    ordered_json& calls = message["tool_calls"];
    if (!calls.is_array()) continue;
    for (ordered_json& call : calls) {
      if (!call.is_object()) continue;
      ordered_json* function = call.contains("function") ? &call["function"] : &call;
      if (!function->is_object() || !function->contains("arguments")) continue;
      any |= change((*function)["arguments"]);
    }
  }
  return any;
}

bool has_null_field(const ordered_json& messages) {
  for (const ordered_json& message : messages) {
    if (!message.is_object()) continue;
    for (const ordered_json& field : message) {
      if (field.is_null()) return true;
    }
  }
  return false;
}

// JSON text -> object; false if it is no text or not the text of an object.
bool parse_arguments(ordered_json& arguments) {
  if (!arguments.is_string()) return false;
  auto parsed = parse_ordered_json(arguments.get_ref<const std::string&>(), kMaxDepth);
  if (!parsed || !parsed->is_object()) return false;
  arguments = std::move(*parsed);
  return true;
}

}  // namespace

ChatTemplate::ChatTemplate(mrt_template* owned, ordered_json special_tokens)
    : handle_(owned, [](mrt_template* chat_template) { mrt_template_free(chat_template); }),
      special_tokens_(std::move(special_tokens)) {}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, ordered_json special_tokens) {
  RustText error;
  mrt_template* handle = mrt_template_new(view_of(source), error.out());
  if (!handle) return fail("the chat template does not compile: {}", error.str());
  return ChatTemplate(handle, std::move(special_tokens));
}

Result<std::string> ChatTemplate::request_text(const ChatRequest& request) const {
  if (!request.variables.is_object()) return fail("the template's variables must be an object");
  for (const ordered_json* part : {&request.messages, &request.tools, &request.variables}) {
    if (deeper_than(*part, kMaxDepth)) {
      return fail("the chat's JSON nests deeper than {} levels", kMaxDepth);
    }
  }
  const ordered_json whole = {{"messages", request.messages},
                              {"tools", request.tools},
                              {"add_generation_prompt", request.add_generation_prompt},
                              {"variables", request.variables},
                              {"special_tokens", special_tokens_},
                              {"keep_nulls", request.keep_nulls}};
  try {
    return whole.dump();
  } catch (const ordered_json::exception&) {
    return fail("the chat has text that is not UTF-8");
  }
}

Result<std::string> ChatTemplate::render(const ChatRequest& request) const {
  MR_ASSIGN(const std::string json, request_text(request));
  RustText text;
  RustText error;
  if (mrt_template_render(handle_.get(), view_of(json), request.now.value_or(std::time(nullptr)),
                          text.out(), error.out())) {
    return fail("the chat template refuses this chat: {}", error.str());
  }
  return text.str();
}

Result<std::vector<int32_t>> ChatTemplate::encode(const ChatRequest& request,
                                                  const Tokenizer& tokenizer) const {
  MR_ASSIGN(const std::string json, request_text(request));
  if (json.size() > kMaxTextBytes) {
    return fail("found a chat of {} bytes, expected at most {}; shorten it", json.size(),
                kMaxTextBytes);
  }
  RustIds ids;
  RustText error;
  if (mrt_template_encode(handle_.get(), tokenizer.handle(), view_of(json),
                          request.now.value_or(std::time(nullptr)), ids.out(), error.out())) {
    return fail("the chat template refuses this chat: {}", error.str());
  }
  return ids.vec();
}

Result<ChatRequest> ChatTemplate::adapt(const ChatRequest& request) const {
  ChatRequest with_objects = request;
  const bool parsed = for_each_arguments(with_objects.messages, parse_arguments);
  const bool nulls = !request.keep_nulls && has_null_field(request.messages);

  std::optional<Error> first_error;
  for (const bool objects : {true, false}) {
    if (!objects && !parsed) continue;
    ChatRequest candidate = objects ? with_objects : request;
    for (const bool keep_nulls : {false, true}) {
      if (keep_nulls && !nulls) continue;
      candidate.keep_nulls = request.keep_nulls || keep_nulls;
      const auto rendered = render(candidate);
      if (rendered) return candidate;
      if (!first_error) first_error = rendered.error();
    }
  }
  return std::unexpected(*first_error);
}

}  // namespace millrace
