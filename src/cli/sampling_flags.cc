#include "cli/sampling_flags.h"

#include <charconv>
#include <utility>

namespace millrace {
namespace {

Result<std::pair<int64_t, double>> parse_bias(const std::string& text) {
  const char* const end = text.data() + text.size();
  int64_t token = 0;
  double bias = 0;
  const auto id = std::from_chars(text.data(), end, token);
  if (id.ec == std::errc() && id.ptr != end && (*id.ptr == '=' || *id.ptr == ':')) {
    const auto number = std::from_chars(id.ptr + 1, end, bias);
    if (number.ec == std::errc() && number.ptr == end) return std::pair{token, bias};
  }
  return fail("--logit-bias {}: expected TOKEN_ID=BIAS, for example 42=-100", text);
}

template <typename T>
void override_with(const std::optional<T>& typed, T& value) {
  if (typed) value = *typed;
}

}  // namespace

Result<SamplingParams> SamplingFlags::apply_to(SamplingParams params) const {
  override_with(temperature, params.temperature);
  override_with(top_k, params.top_k);
  override_with(top_p, params.top_p);
  override_with(min_p, params.min_p);
  override_with(repetition_penalty, params.repetition_penalty);
  override_with(presence_penalty, params.presence_penalty);
  override_with(frequency_penalty, params.frequency_penalty);
  for (const std::string& text : logit_bias) {
    MR_ASSIGN(const auto entry, parse_bias(text));
    for (const auto& [token, bias] : params.logit_bias) {
      if (token == entry.first)
        return fail("--logit-bias {}: token {} has one already", text, token);
    }
    params.logit_bias.push_back(entry);
  }
  params.seed = seed;
  params.n = n;
  params.stop = stop;
  params.stop_token_ids = stop_token_ids;
  params.ignore_eos = ignore_eos;
  params.max_tokens = max_tokens;
  params.min_tokens = min_tokens;
  params.logprobs = logprobs;
  return params;
}

void add_sampling_flags(CLI::App& command, SamplingFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Sampling");
  };
  add("--temperature", flags.temperature,
      "0: always the likeliest token. Default: generation_config.json of the model, else 0");
  add("--top-k", flags.top_k, "Only the k likeliest tokens; 0: all");
  add("--top-p", flags.top_p, "Only the likeliest tokens with this much probability together");
  add("--min-p", flags.min_p, "Only tokens at least this likely, relative to the likeliest");
  add("--repetition-penalty", flags.repetition_penalty,
      "Divides the logits of tokens of prompt and answer; 1: off");
  add("--presence-penalty", flags.presence_penalty, "Lowers tokens that the answer has; -2 to 2");
  add("--frequency-penalty", flags.frequency_penalty,
      "Lowers tokens by how often the answer has them; -2 to 2");
  add("--logit-bias", flags.logit_bias, "TOKEN_ID=BIAS, added to the token's logit; may repeat")
      ->allow_extra_args(false);
  add("--seed", flags.seed, "The same seed gives the same answer; default: another one each time");
  add("--n", flags.n, "Answers to the same prompt");
  add("--stop", flags.stop, "A text that ends the answer and is not shown; may repeat")
      ->allow_extra_args(false);
  add("--stop-token-ids", flags.stop_token_ids, "Token ids that end the answer: 1,2,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", flags.ignore_eos, "Go on after the model's end tokens")
      ->group("Sampling");
  add("--max-tokens", flags.max_tokens, "Longest answer; default: as much as the context holds");
  add("--min-tokens", flags.min_tokens, "Shortest answer: nothing ends it before");
  add("--logprobs", flags.logprobs,
      "With --json: log-probabilities, and those of N alternatives; 0 to 20");
}

}  // namespace millrace
