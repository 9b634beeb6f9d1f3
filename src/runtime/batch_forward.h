// Teacher-forced forwards over whole prompts, without an engine: for conformance tests and dumps.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "runtime/model_runner.h"

namespace millrace {

struct BatchForwardOptions {
  int64_t num_greedy = 0;   // tokens to continue each prompt by, always the likeliest one
  int64_t chunk = 0;        // tokens of a prompt per step; 0: as many as a step takes
  bool one_by_one = false;  // prompts one after the other, else all in one batch
  bool capture_hidden = false;
  bool capture_topk = false;
  std::function<bool()> stopped;  // asked before each step; true ends the work
};

struct PromptResult {
  std::vector<float> logits;               // [prompt length][vocab_size]
  std::vector<int32_t> greedy;             // [num_greedy]
  std::vector<std::vector<float>> hidden;  // by layer: [prompt length][hidden_size], if captured
  // By layer: [prompt length][index_topk], positions ascending, then -1; if captured.
  std::vector<std::vector<int32_t>> topk;
};

// Blocks that a pool needs to hold all prompts and their continuations at once.
int64_t blocks_for_prompts(const std::vector<std::vector<int32_t>>& prompts, int64_t num_greedy,
                           int64_t block_size);

// Results in the order of the prompts. Errors: those of the runner; the pool is too small;
// "stopped".
Result<std::vector<PromptResult>> run_batch_forward(
    ModelRunner& runner, const std::vector<std::vector<int32_t>>& prompts,
    const BatchForwardOptions& options, Progress& progress);

}  // namespace millrace
