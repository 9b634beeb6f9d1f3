// One sequence in work: a sample of a request, its tokens and its place in the cache.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/text_sink.h"
#include "kvcache/block_table.h"
#include "runtime/sampler.h"

namespace millrace {

struct Sequence {
  Sequence(BlockPool& pool, SequenceSampler its_sampler)
      : blocks(pool), sampler(std::move(its_sampler)) {}

  uint64_t request_id = 0;
  int sample_index = 0;
  uint64_t arrival = 0;  // FCFS order, unique

  std::vector<int32_t> token_ids;  // prompt, then answer
  int64_t num_prompt_tokens = 0;
  int64_t max_length = 0;  // the sequence ends when it has this many tokens
  int64_t min_tokens = 0;  // of the answer, before stop strings count

  int64_t num_computed = 0;   // tokens whose keys and values are in the cache
  int64_t num_scheduled = 0;  // tokens of the step being made
  BlockTable blocks;
  SequenceSampler sampler;
  std::unique_ptr<TextSink> text;  // may be null: ids only

  int64_t length() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t num_remaining() const { return length() - num_computed; }
};

}  // namespace millrace
