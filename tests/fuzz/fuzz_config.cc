// Fuzz target: config.json.
#include <string_view>

#include "base/check.h"
#include "config/engine_config.h"
#include "config/model_config.h"
#include "fuzz_check.h"
#include "io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto json = parse_json({reinterpret_cast<const char*>(data), size});
  if (!json) {
    fuzz::check_error(json.error());
    return 0;
  }
  const auto config = parse_hf_config(*json);
  if (!config) {
    fuzz::check_error(config.error());
    return 0;
  }
  // What was accepted must be usable without overflow.
  MR_CHECK(kv_bytes_per_token(*config, {.kv = DType::kF32}) > 0);
  MR_CHECK(config->q_size() > 0 && config->kv_size() > 0);
  return 0;
}
