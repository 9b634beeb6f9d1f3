#include "engine/generation_config.h"

namespace millrace {
namespace {

// Reads a number into `value` if the field is there.
template <typename T>
Result<> read_number(const nlohmann::json& config, const char* field, T& value) {
  const auto entry = config.find(field);
  if (entry == config.end() || entry->is_null()) return {};
  const bool fits = std::is_integral_v<T> ? entry->is_number_integer() : entry->is_number();
  if (!fits) {
    return fail("{} is {}, expected a {}number", field, entry->dump(),
                std::is_integral_v<T> ? "whole " : "");
  }
  // A larger whole number would wrap.
  if (std::is_integral_v<T> && entry->is_number_unsigned() && entry->get<uint64_t>() > INT64_MAX) {
    return fail("{} is {}, expected at most {}", field, entry->dump(), INT64_MAX);
  }
  value = entry->get<T>();
  return {};
}

}  // namespace

Result<SamplingParams> default_sampling_params(const nlohmann::json& generation_config) {
  SamplingParams params;
  params.temperature = 0;
  if (generation_config.is_null()) return params;
  if (!generation_config.is_object()) return fail("not a JSON object");
  MR_TRY(read_number(generation_config, "repetition_penalty", params.repetition_penalty));
  const auto do_sample = generation_config.find("do_sample");
  if (do_sample != generation_config.end() && *do_sample == true) {
    params.temperature = 1;
    MR_TRY(read_number(generation_config, "temperature", params.temperature));
    MR_TRY(read_number(generation_config, "top_k", params.top_k));
    MR_TRY(read_number(generation_config, "top_p", params.top_p));
    MR_TRY(read_number(generation_config, "min_p", params.min_p));
  }
  MR_TRY(validate(params, std::nullopt));
  return params;
}

}  // namespace millrace
