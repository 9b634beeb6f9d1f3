// The flags that say how a model is run, shared by all commands that load one.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "config/engine_config.h"

namespace millrace {

// Values as typed; parse() checks them.
struct EngineFlags {
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string activation_quantization = "auto";
  std::string numeric_class = "f32";
  int64_t max_model_len = 0;
  int64_t max_num_batched_tokens = 0;
  int max_num_seqs = 0;
  int block_size = 0;
  int64_t num_blocks = 0;
  std::string kv_cache_memory;
  int threads = 0;

  // The configuration that the flags ask for; an error names the flag, the value and the choices.
  Result<EngineConfig> parse(Purpose purpose) const;
};

// Adds the flags to a command, in a help group of their own.
void add_engine_flags(CLI::App& command, EngineFlags& flags);

// Prints "millrace: error: MESSAGE" on stderr.
void print_error(const Error& error);

}  // namespace millrace
