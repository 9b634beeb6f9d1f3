#include "cli/summary.h"

#include <fmt/format.h>

#include <cstdio>

namespace millrace {
namespace {

nlohmann::ordered_json logprobs_json(const Choice& choice, const Tokenizer& tokenizer) {
  auto list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < choice.logprobs.size(); ++i) {
    auto top = nlohmann::ordered_json::array();
    for (const auto& [id, logprob] : choice.logprobs[i].top) {
      top.push_back({{"id", id}, {"token", tokenizer.token_bytes(id)}, {"logprob", logprob}});
    }
    const int32_t id = choice.token_ids[i];
    list.push_back({{"id", id},
                    {"token", tokenizer.token_bytes(id)},
                    {"logprob", choice.logprobs[i].logprob},
                    {"top_logprobs", std::move(top)}});
  }
  return list;
}

}  // namespace

std::string summary_of(const Generation& generation) {
  std::string reasons;
  for (const Choice& choice : generation.choices) {
    if (!reasons.empty()) reasons += ", ";
    reasons += name_of(choice.finish_reason);
  }
  std::string line = fmt::format("prompt {} tokens, answer {} tokens ({})",
                                 generation.num_prompt_tokens, generation.num_generated, reasons);
  if (generation.num_generated > 0) {
    line += fmt::format(", first token after {:.3f} s, prefill {:.1f} tok/s",
                        generation.first_token_time, generation.prefill_rate());
  }
  if (const double rate = generation.decode_rate(); rate > 0) {
    line += fmt::format(", decode {:.1f} tok/s", rate);
  }
  return line;
}

void print_summary(const Generation& generation) {
  std::fprintf(stderr, "[%s]\n", summary_of(generation).c_str());
}

nlohmann::ordered_json to_json(const Generation& generation, const std::string& model,
                               const Tokenizer& tokenizer) {
  auto choices = nlohmann::ordered_json::array();
  for (size_t i = 0; i < generation.choices.size(); ++i) {
    const Choice& choice = generation.choices[i];
    nlohmann::ordered_json entry = {{"index", i},
                                    {"text", choice.text},
                                    {"token_ids", choice.token_ids},
                                    {"finish_reason", name_of(choice.finish_reason)}};
    if (!choice.logprobs.empty()) entry["logprobs"] = logprobs_json(choice, tokenizer);
    choices.push_back(std::move(entry));
  }
  return {{"model", model},
          {"choices", std::move(choices)},
          {"usage",
           {{"prompt_tokens", generation.num_prompt_tokens},
            {"completion_tokens", generation.num_generated},
            {"total_tokens", generation.num_prompt_tokens + generation.num_generated}}},
          {"timings",
           {{"first_token_seconds", generation.first_token_time},
            {"total_seconds", generation.total_time},
            {"prefill_tokens_per_second", generation.prefill_rate()},
            {"decode_tokens_per_second", generation.decode_rate()}}}};
}

}  // namespace millrace
