// What `millrace inspect` says about a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/model_config.h"
#include "io/checkpoint.h"

namespace millrace {

// Tensors of one format.
struct FormatShare {
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;  // in the file
};

struct KvCost {
  std::string dtype;
  int64_t bytes_per_1000_tokens = 0;
};

struct InspectReport {
  std::string path;
  std::string kind;  // "GGUF v3, 1 file", "safetensors, 2 files"
  ModelConfig config;
  int64_t parameters = 0;
  std::map<std::string, FormatShare> formats;
  int64_t file_bytes = 0;
  int64_t weight_memory_bytes = 0;  // packed for the kernels
  std::vector<KvCost> kv;
  std::string tokenizer;  // "gpt2/smollm, 49152 tokens", or "none: " and why
  bool chat_template = false;
  std::vector<int32_t> end_tokens;
};

Result<InspectReport> inspect(const Checkpoint& checkpoint);

// Lines of "name  value", ready to print.
std::string to_text(const InspectReport& report);

nlohmann::ordered_json to_json(const InspectReport& report);

}  // namespace millrace
