// How packed queries and the scratch memory of the indexer's kernels are divided. Plain types, for
// files of every instruction set.
#pragma once

#include "kernels/indexer.h"
#include "kernels/topk.h"

namespace millrace {

[[gnu::always_inline]] inline constexpr int64_t whole_lines(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// One token's packed queries: values (int8 codes for int8 keys, floats for others), then int32
// starts and fp32 coefficients, a number of each for each head.
struct IndexQueryLayout {
  int64_t padded_heads = 0;
  int64_t starts = 0;        // bytes before them
  int64_t coefficients = 0;  // and before these
  int64_t bytes = 0;

  [[gnu::always_inline]] static IndexQueryLayout of(int num_heads, int index_dim,
                                                    DType index_dtype) {
    IndexQueryLayout layout;
    layout.padded_heads = (num_heads + kIndexHeadPad - 1) / kIndexHeadPad * kIndexHeadPad;
    const int64_t element = index_dtype == DType::kI8 ? 1 : 4;
    layout.starts = whole_lines(layout.padded_heads * index_dim * element);
    layout.coefficients = layout.starts + layout.padded_heads * 4;
    layout.bytes = layout.starts + whole_lines(2 * layout.padded_heads * 4);
    return layout;
  }
};

struct IndexerScratchSizes {
  int64_t candidates = 0;  // of one token
  int64_t shared = 0;
  int64_t total = 0;

  [[gnu::always_inline]] static IndexerScratchSizes of(int topk) {
    IndexerScratchSizes sizes;
    sizes.candidates = whole_lines(topk_candidates_bytes(topk));
    sizes.shared = whole_lines(topk_shared_bytes(topk));
    sizes.total = kIndexTokens * sizes.candidates + sizes.shared;
    return sizes;
  }
};

}  // namespace millrace
