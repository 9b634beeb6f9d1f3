// Drives a runner for `millrace bench`: prompts and decode steps of random tokens at a given depth.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "program/program.h"
#include "runtime/model_runner.h"

namespace millrace {

// Time and work of one kind of step (of the program), over a run.
struct StepProfile {
  double seconds = 0;
  int64_t count = 0;
  StepCost cost;
};

// Time and work of one measured run.
struct BenchRun {
  double seconds = 0;
  int64_t tokens = 0;
  StepCost cost;                               // of all its steps
  std::map<std::string, StepProfile> profile;  // by label; empty unless asked for
};

class BenchDriver {
 public:
  // Room for `batch` sequences of `max_tokens`; the runner's pool must hold them (blocks_needed).
  BenchDriver(ModelRunner& runner, int64_t batch, int64_t max_tokens);

  static int64_t blocks_needed(int64_t batch, int64_t max_tokens, int64_t block_size);

  // Times each step of the program from now on (some percent slower).
  void set_profile(bool on) { profile_ = on; }

  // Called after each step with its tokens; an error ends the run.
  using OnTokens = std::function<Result<>(int64_t tokens)>;

  // Makes sure that the first `batch` sequences have at least `depth` tokens in the cache.
  Result<> fill(int64_t batch, int64_t depth, const OnTokens& on_tokens);
  // Tokens that fill() would compute.
  int64_t missing(int64_t batch, int64_t depth) const;

  // Computes prompts of `length` tokens for `batch` sequences after `depth` tokens.
  Result<BenchRun> prefill(int64_t batch, int64_t depth, int64_t length, const OnTokens& on_tokens);
  // `steps` decode steps of `batch` sequences from `depth` on.
  Result<BenchRun> decode(int64_t batch, int64_t depth, int64_t steps, const OnTokens& on_tokens);

 private:
  struct Chunk {
    int64_t sequence = 0;
    int64_t begin = 0;
    int64_t end = 0;
    LogitsRows logits = LogitsRows::kNone;
  };

  Result<> step(const std::vector<Chunk>& chunks, BenchRun& run, const OnTokens& on_tokens);
  // Computes [begin(s), end) of sequences s, in steps as full as the runner takes them.
  Result<> compute(const std::vector<Chunk>& spans, BenchRun& run, const OnTokens& on_tokens);

  ModelRunner& runner_;
  std::vector<std::vector<int32_t>> block_tables_;  // by sequence
  std::vector<int64_t> filled_;                     // tokens in the cache, by sequence
  std::vector<int32_t> token_ids_;
  std::mt19937 random_{1};
  bool profile_ = false;
};

}  // namespace millrace
