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

// What the weights would take in memory, all matrices in one format.
struct WeightEstimate {
  std::string format;
  int64_t bytes = 0;
};

struct InspectReport {
  std::string path;
  std::string kind;  // "GGUF v3, 1 file", "safetensors, 2 files"; or that there are no weights
  bool has_weights = true;
  // What keeps the weights from being loaded, one line; empty if nothing does.
  std::string fault;
  ModelConfig config;
  std::string published_format;  // "bfloat16", "fp8": what config.json says; empty for GGUF
  int64_t parameters = 0;
  std::vector<WeightEstimate> estimates;  // without weights
  std::map<std::string, FormatShare> formats;
  int64_t file_bytes = 0;
  int64_t weight_memory_bytes = 0;  // packed for the kernels
  std::vector<KvCost> kv;
  std::string tokenizer;  // "gpt2/smollm, 49152 tokens", or "none: " and why
  bool chat_template = false;
  std::vector<int32_t> end_tokens;
};

// Reads the configuration, names, types and shapes. A checkpoint without tensors is described by
// its configuration alone. Error: the configuration's.
Result<InspectReport> inspect(const Checkpoint& checkpoint);

// Lines of "name  value", ready to print.
std::string to_text(const InspectReport& report);

nlohmann::ordered_json to_json(const InspectReport& report);

}  // namespace millrace
