#include "runtime/batch_forward.h"

#include <algorithm>
#include <deque>

#include "kernels/sampling.h"
#include "kvcache/block_table.h"

namespace millrace {
namespace {

// A prompt on its way: what is computed, where its cache is, what came out.
struct Sequence {
  Sequence(const std::vector<int32_t>& prompt_ids, BlockPool& pool, PromptResult& prompt_result)
      : prompt(&prompt_ids), table(pool), result(&prompt_result) {}

  const std::vector<int32_t>* prompt;
  BlockTable table;
  PromptResult* result;
  int64_t num_computed = 0;
  int32_t next_token = 0;  // once the prompt is done

  int64_t prompt_len() const { return static_cast<int64_t>(prompt->size()); }
};

class BatchForward {
 public:
  BatchForward(ModelRunner& runner, const BatchForwardOptions& options, Progress& progress)
      : runner_(runner), options_(options), progress_(progress) {}

  // Runs one group of sequences from their first token to their last.
  Result<> run(std::deque<Sequence>& group) {
    while (true) {
      std::vector<Sequence*> members;
      StepInput step;
      select_prefill(group, members, step);
      if (members.empty()) break;
      MR_TRY(run_prefill(members, step));
    }
    for (int64_t i = 0; i < options_.num_greedy; ++i) MR_TRY(greedy_step(group, i));
    return {};
  }

 private:
  Result<StepLogits> forward(const StepInput& step) {
    if (options_.stopped && options_.stopped()) return fail("stopped");
    return runner_.forward(step);
  }

  // Takes the next chunk of as many sequences as a step has room for.
  void select_prefill(std::deque<Sequence>& group, std::vector<Sequence*>& members,
                      StepInput& step) const {
    int64_t budget = runner_.options().max_num_batched_tokens;
    for (Sequence& sequence : group) {
      int64_t count = std::min(sequence.prompt_len() - sequence.num_computed, budget);
      if (options_.chunk > 0) count = std::min(count, options_.chunk);
      if (count <= 0) continue;
      if (static_cast<int64_t>(members.size()) == runner_.options().max_num_seqs) break;
      budget -= count;
      members.push_back(&sequence);
      step.sequences.push_back(
          {.token_ids =
               std::span(*sequence.prompt)
                   .subspan(static_cast<size_t>(sequence.num_computed), static_cast<size_t>(count)),
           .num_computed = sequence.num_computed,
           .block_table = sequence.table.blocks(),
           .logits = LogitsRows::kAll});
    }
  }

  Result<> run_prefill(const std::vector<Sequence*>& members, const StepInput& step) {
    runner_.capture_hidden(options_.capture_hidden);
    runner_.capture_topk(options_.capture_topk);
    MR_ASSIGN(const StepLogits logits, forward(step));
    int64_t row = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      Sequence& sequence = *members[i];
      const auto count = static_cast<int64_t>(step.sequences[i].token_ids.size());
      const float* first = logits.rows + row * logits.vocab_size;
      sequence.result->logits.insert(sequence.result->logits.end(), first,
                                     first + count * logits.vocab_size);
      keep_rows(runner_.hidden(), row, count, logits.num_rows, sequence.result->hidden);
      keep_rows(runner_.topk(), row, count, logits.num_rows, sequence.result->topk);
      sequence.num_computed += count;
      row += count;
      sequence.next_token = argmax(logits.row(row - 1));
      progress_.advance(count);
    }
    return {};
  }

  // Appends rows [row, row + count) of what was captured of each layer,
  // [layers][num_tokens][width].
  template <typename T>
  void keep_rows(std::span<const T> captured, int64_t row, int64_t count, int64_t num_tokens,
                 std::vector<std::vector<T>>& kept) const {
    if (captured.empty()) return;
    const auto layers = static_cast<size_t>(runner_.model().config().num_layers);
    const auto tokens = static_cast<size_t>(num_tokens);
    const size_t width = captured.size() / (layers * tokens);
    kept.resize(layers);
    for (size_t layer = 0; layer < layers; ++layer) {
      const T* first = captured.data() + (layer * tokens + static_cast<size_t>(row)) * width;
      kept[layer].insert(kept[layer].end(), first, first + static_cast<size_t>(count) * width);
    }
  }

  // Appends the likeliest token to every sequence; all but the last of them are run, too.
  Result<> greedy_step(std::deque<Sequence>& group, int64_t index) {
    runner_.capture_hidden(false);
    runner_.capture_topk(false);
    const auto most = static_cast<size_t>(
        std::min(runner_.options().max_num_seqs, runner_.options().max_num_batched_tokens));
    for (Sequence& sequence : group) sequence.result->greedy.push_back(sequence.next_token);
    progress_.advance(static_cast<int64_t>(group.size()));
    if (index + 1 == options_.num_greedy) return {};
    for (size_t begin = 0; begin < group.size(); begin += most) {
      const size_t end = std::min(begin + most, group.size());
      StepInput step;
      for (size_t i = begin; i < end; ++i) {
        step.sequences.push_back({.token_ids = std::span(&group[i].next_token, 1),
                                  .num_computed = group[i].num_computed,
                                  .block_table = group[i].table.blocks(),
                                  .logits = LogitsRows::kLast});
      }
      MR_ASSIGN(const StepLogits logits, forward(step));
      for (size_t i = begin; i < end; ++i) {
        group[i].num_computed += 1;
        group[i].next_token = argmax(logits.row(static_cast<int64_t>(i - begin)));
      }
    }
    return {};
  }

  ModelRunner& runner_;
  const BatchForwardOptions& options_;
  Progress& progress_;
};

}  // namespace

int64_t blocks_for_prompts(const std::vector<std::vector<int32_t>>& prompts, int64_t num_greedy,
                           int64_t block_size) {
  int64_t blocks = 0;
  for (const auto& prompt : prompts) {
    blocks += (static_cast<int64_t>(prompt.size()) + num_greedy + block_size - 1) / block_size;
  }
  return blocks;
}

Result<std::vector<PromptResult>> run_batch_forward(
    ModelRunner& runner, const std::vector<std::vector<int32_t>>& prompts,
    const BatchForwardOptions& options, Progress& progress) {
  std::vector<PromptResult> results(prompts.size());
  BatchForward forward(runner, options, progress);
  int64_t total = 0;
  for (const auto& prompt : prompts) {
    total += static_cast<int64_t>(prompt.size()) + options.num_greedy;
  }
  progress.begin("forward", total, false);
  const size_t group_size = options.one_by_one ? 1 : std::max<size_t>(prompts.size(), 1);
  for (size_t begin = 0; begin < prompts.size(); begin += group_size) {
    BlockPool pool(runner.options().num_blocks, runner.options().block_size);
    std::deque<Sequence> group;
    for (size_t i = begin; i < std::min(begin + group_size, prompts.size()); ++i) {
      group.emplace_back(prompts[i], pool, results[i]);
      const int64_t needed = group.back().prompt_len() + options.num_greedy;
      if (!group.back().table.grow_to(needed)) {
        return fail("the cache of {} blocks is too small for {} prompts with {} more tokens each",
                    pool.num_blocks(), prompts.size(), options.num_greedy);
      }
    }
    MR_TRY(forward.run(group));
  }
  progress.end();
  return results;
}

}  // namespace millrace
