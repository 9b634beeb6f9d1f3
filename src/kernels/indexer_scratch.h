// How the scratch memory of the indexer's kernels is divided. Plain types, for files of every
// instruction set.
#pragma once

#include "kernels/indexer.h"
#include "kernels/topk.h"

namespace millrace {

// Heads are padded to this many.
inline constexpr int kIndexHeadPad = 8;

[[gnu::always_inline]] inline constexpr int64_t whole_lines(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

struct IndexerScratchSizes {
  int64_t padded_heads = 0;
  int64_t values = 0;      // bytes of one token's packed queries
  int64_t query = 0;       // and of its starts and coefficients besides
  int64_t candidates = 0;  // of one token's candidates
  int64_t shared = 0;
  int64_t total = 0;

  [[gnu::always_inline]] static IndexerScratchSizes of(int num_heads, int index_dim, int topk) {
    IndexerScratchSizes sizes;
    sizes.padded_heads = (num_heads + kIndexHeadPad - 1) / kIndexHeadPad * kIndexHeadPad;
    sizes.values = whole_lines(sizes.padded_heads * index_dim * 4);
    sizes.query = sizes.values + whole_lines(2 * sizes.padded_heads * 4);
    sizes.candidates = whole_lines(topk_candidates_bytes(topk));
    sizes.shared = whole_lines(topk_shared_bytes(topk));
    sizes.total = kIndexTokens * (sizes.query + sizes.candidates) + sizes.shared;
    return sizes;
  }
};

}  // namespace millrace
