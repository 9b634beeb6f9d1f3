// The flags that say how a model is run, shared by all commands that load one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "config/engine_config.h"

namespace millrace {

// Values as typed; parse() checks them. What is absent is decided from the model and the machine.
struct EngineFlags {
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string indexer_dtype = "auto";
  std::string load_format = "auto";
  std::string dummy_format;  // empty: Q8_0
  std::string activation_quantization = "auto";
  std::string numeric_class = "f32";
  std::optional<int64_t> max_model_len;
  std::optional<int64_t> max_num_batched_tokens;
  std::optional<int> max_num_seqs;
  std::optional<int> block_size;
  std::optional<int64_t> num_blocks;
  std::string kv_cache_memory;
  int threads = 0;

  // The configuration that the flags ask for; an error names the flag, the value and the choices.
  Result<EngineConfig> parse(Purpose purpose) const;

  // Sequences of one step for a command that could use `wanted` (at least 1): what was typed, else
  // as many of them as the tokens of one step allow.
  int num_seqs_for(int64_t wanted) const;
};

// Adds the flags to a command, in a help group of their own.
void add_engine_flags(CLI::App& command, EngineFlags& flags);

}  // namespace millrace
