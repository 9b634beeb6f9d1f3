// Which tokens the rows of a tensor are: all of them on every rank, or this rank's run of them.
//
// The layout is stated when a tensor is made, travels with it, and is compared where tensors meet.
// It is never inferred from a shape: a shard and a whole batch may have as many rows.
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

enum class TokenPlacement : uint8_t {
  kReplicated,  // every rank has all tokens
  kSharded,     // each rank has a contiguous run of the padded tokens
};

struct TokenLayout {
  TokenPlacement placement = TokenPlacement::kReplicated;
  int64_t count = 0;   // tokens of the step, without padding
  int64_t padded = 0;  // with padding: a multiple of the ranks if sharded
  // The tokens of these rows: [begin, end) of the padded ones.
  int64_t begin = 0;
  int64_t end = 0;

  // All of `count` tokens.
  static TokenLayout replicated(int64_t count) {
    return {TokenPlacement::kReplicated, count, count, 0, count};
  }
  // Rank `rank`'s run of `count` tokens that are padded to a multiple of `num_ranks`.
  static TokenLayout sharded(int64_t count, int64_t num_ranks, int64_t rank) {
    const int64_t rows = (count + num_ranks - 1) / num_ranks;
    return {TokenPlacement::kSharded, count, rows * num_ranks, rank * rows, (rank + 1) * rows};
  }

  // Rows [from, to) of these: a round of the same step.
  TokenLayout rows_between(int64_t from, int64_t to) const {
    return {placement, count, padded, begin + from, begin + to};
  }

  int64_t rows() const { return end - begin; }
  bool operator==(const TokenLayout&) const = default;
};

// "replicated, 512 tokens", "sharded, tokens 219 to 438 of 3500 (padded to 3504)".
std::string describe(const TokenLayout& layout);

}  // namespace millrace
