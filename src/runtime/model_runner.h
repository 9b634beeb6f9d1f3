// Runs a model step by step: lays out the batch, records the forward, runs it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/thread_team.h"
#include "config/engine_config.h"
#include "kernels/kv_layout.h"
#include "models/model.h"
#include "program/program.h"
#include "runtime/forward_runner.h"

namespace millrace {

// Sizes of a runner: fixed at load, checked at each step.
struct RunnerOptions {
  int64_t max_num_batched_tokens = 512;  // tokens of one step
  int64_t max_num_seqs = 16;             // sequences of one step
  int64_t block_size = 16;               // positions of a cache block
  int64_t num_blocks = 0;
  CacheTypes cache_types;
};

class ModelRunner final : public ForwardRunner {
 public:
  // Reserves the cache (memory becomes resident as it is written) and the workspace. Error: the
  // system gives no memory.
  static Result<std::unique_ptr<ModelRunner>> create(std::unique_ptr<Model> model,
                                                     std::unique_ptr<ThreadTeam> team,
                                                     const RunnerOptions& options);

  // See ForwardRunner. Errors: more tokens or sequences than the options allow, a token id outside
  // the vocabulary, a block table that does not cover the sequence.
  Result<StepLogits> forward(const StepInput& input) override;
  int64_t vocab_size() const override { return model_->config().vocab_size; }

  const RunnerOptions& options() const { return options_; }
  const Model& model() const { return *model_; }

  // Keeps the residual stream after each layer in the steps that follow, for dumps.
  void capture_hidden(bool on) { capture_hidden_ = on; }
  // [num_layers][tokens of the last step][hidden]; empty unless captured.
  std::span<const float> hidden() const { return hidden_; }

  // Likewise the positions that each token attends to: [num_layers][tokens][index_topk], ascending,
  // then -1. Empty in models without an indexer.
  void capture_topk(bool on) { capture_topk_ = on; }
  std::span<const int32_t> topk() const { return topk_; }

  // For tests: sets every byte of the cache and of the workspace, as if they had been used before.
  // 0xff makes NaN of their numbers, scales included, and so shows who reads what was not written.
  void fill_memory(std::byte value);

  // The program of the last step: steps, costs and, if timing is on, seconds.
  Program& program() { return program_; }

 private:
  ModelRunner() = default;
  Result<> check(const StepInput& input) const;
  void lay_out_batch(const StepInput& input);

  std::unique_ptr<Model> model_;
  std::unique_ptr<ThreadTeam> team_;
  RunnerOptions options_;
  Program program_;

  Buffer cache_memory_;
  // By layer, one of the two.
  std::vector<KvLayerView> cache_;
  std::vector<MlaLayerView> mla_cache_;

  // The step's inputs, row by row.
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int64_t> slot_mapping_;
  std::vector<AttentionSequence> sequences_;
  std::vector<int32_t> logits_rows_;
  std::vector<AttentionSequence> logits_sequences_;
  ForwardBatch batch_;

  Buffer activations_;
  Buffer scratch_;
  bool capture_hidden_ = false;
  std::vector<float> hidden_;
  bool capture_topk_ = false;
  std::vector<int32_t> topk_;
};

}  // namespace millrace
