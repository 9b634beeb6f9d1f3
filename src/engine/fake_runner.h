// A runner for tests: its "model" is a hash of the whole history, read back from a paged cache.
//
// It stores each token in the slot that the block table gives and computes the logits from what it
// reads back, so a wrong table, a lost block or a token that is computed twice changes the answer.
// Broken contracts are reported through `violations`.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kernels/sampling.h"
#include "runtime/forward_runner.h"

namespace millrace {

// Logits of the token that follows `history`: pseudo-random, from -4 to 4.
inline std::vector<float> hash_model_logits(std::span<const int32_t> history, int64_t vocab_size) {
  uint64_t state = 0x1234;
  for (const int32_t token : history) {
    state = RandomStream::mix(state * 31 + static_cast<uint64_t>(token) + 1);
  }
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint64_t word = RandomStream::mix(state + i * 0x9e3779b97f4a7c15u);
    logits[i] = static_cast<float>(word >> 40) * 0x1p-21f - 4.0f;
  }
  return logits;
}

class FakeRunner final : public ForwardRunner {
 public:
  FakeRunner(int64_t vocab_size, int64_t num_blocks, int64_t block_size)
      : vocab_size_(vocab_size),
        block_size_(block_size),
        cache_(static_cast<size_t>(num_blocks * block_size), -1) {}

  int64_t vocab_size() const override { return vocab_size_; }

  Result<StepLogits> forward(const StepInput& input) override {
    if (fail_next) {
      fail_next = false;
      return fail("the fake runner was told to fail");
    }
    check(input);
    for (const SequenceInput& sequence : input.sequences) write(sequence);
    logits_.clear();
    int64_t rows = 0;
    for (const SequenceInput& sequence : input.sequences) {
      if (sequence.logits == LogitsRows::kNone) continue;
      const std::vector<float> row = hash_model_logits(read_history(sequence), vocab_size_);
      logits_.insert(logits_.end(), row.begin(), row.end());
      ++rows;
    }
    if (nan_logits) logits_.assign(logits_.size(), std::nanf(""));
    return StepLogits{logits_.data(), rows, vocab_size_};
  }

  bool fail_next = false;
  bool nan_logits = false;  // as those of a model with damaged weights
  std::vector<std::string> violations;
  std::vector<int64_t> step_tokens;     // tokens of each step
  std::vector<int64_t> step_sequences;  // sequences of each step

 private:
  static int64_t end_of(const SequenceInput& sequence) {
    return sequence.num_computed + static_cast<int64_t>(sequence.token_ids.size());
  }

  void check(const StepInput& input) {
    int64_t tokens = 0;
    std::set<int32_t> used;
    for (const SequenceInput& sequence : input.sequences) {
      tokens += static_cast<int64_t>(sequence.token_ids.size());
      if (sequence.token_ids.empty()) violations.push_back("a sequence without tokens");
      const int64_t needed = (end_of(sequence) + block_size_ - 1) / block_size_;
      if (static_cast<int64_t>(sequence.block_table.size()) < needed) {
        violations.push_back(fmt::format("{} blocks for {} positions", sequence.block_table.size(),
                                         end_of(sequence)));
      }
      for (const int32_t block : sequence.block_table) {
        if (!used.insert(block).second) {
          violations.push_back(fmt::format("block {} is in two tables", block));
        }
      }
    }
    step_tokens.push_back(tokens);
    step_sequences.push_back(static_cast<int64_t>(input.sequences.size()));
  }

  int32_t& slot(const SequenceInput& sequence, int64_t position) {
    const int32_t block = sequence.block_table[static_cast<size_t>(position / block_size_)];
    return cache_[static_cast<size_t>(block * block_size_ + position % block_size_)];
  }

  void write(const SequenceInput& sequence) {
    for (size_t i = 0; i < sequence.token_ids.size(); ++i) {
      slot(sequence, sequence.num_computed + static_cast<int64_t>(i)) = sequence.token_ids[i];
    }
  }

  std::vector<int32_t> read_history(const SequenceInput& sequence) {
    std::vector<int32_t> history;
    history.reserve(static_cast<size_t>(end_of(sequence)));
    for (int64_t p = 0; p < end_of(sequence); ++p) history.push_back(slot(sequence, p));
    return history;
  }

  int64_t vocab_size_;
  int64_t block_size_;
  std::vector<int32_t> cache_;  // the token in each slot
  std::vector<float> logits_;
};

}  // namespace millrace
