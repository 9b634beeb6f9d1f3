// A tiny model with what the reference implementation computes from it (tests/data/golden/<name>).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/engine_config.h"
#include "runtime/batch_forward.h"
#include "runtime/load_model.h"

namespace millrace {

struct GoldenPrompt {
  std::vector<int32_t> ids;
  std::vector<float> logits;    // [ids][vocab]
  std::vector<int32_t> greedy;  // continuation
  // By layer, of sparse models: [ids][min(index_topk, ids)] positions ascending, then -1, and the
  // gap between the last score that was chosen and the next.
  std::vector<std::vector<int32_t>> topk;
  std::vector<std::vector<float>> topk_gap;
};

struct GoldenCase {
  std::string folder;
  std::vector<GoldenPrompt> prompts;

  std::vector<std::vector<int32_t>> prompt_ids() const;
};

Result<GoldenCase> read_golden_case(const std::string& name);

// A forward's settings with a pool and batch that hold all prompts of `prompts` at once.
EngineConfig forward_config(const std::vector<std::vector<int32_t>>& prompts, int64_t num_greedy);

// Loads `model`, runs the prompts and gives what came out.
Result<std::vector<PromptResult>> run_prompts(const std::string& model, const EngineConfig& engine,
                                              const std::vector<std::vector<int32_t>>& prompts,
                                              const BatchForwardOptions& options);

// Largest absolute difference; infinite if the sizes differ or a value is NaN.
double max_abs_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace millrace
