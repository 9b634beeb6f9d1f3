// Sizes of the streamed choice of the k best (topk_impl.h). Plain types, for files of every
// instruction set.
#pragma once

#include <cstdint>

namespace millrace {

// Candidates that are held before they are cut to the k best: the more, the fewer cuts. A multiple
// of 16.
[[gnu::always_inline]] inline constexpr int64_t topk_capacity(int64_t k) {
  const int64_t slack = 2 * k > 1024 ? 2 * k : 1024;
  return (k + slack + 15) / 16 * 16;
}

// Bytes of one stream's candidates: keys and positions, and room for a whole vector after the last.
[[gnu::always_inline]] inline constexpr int64_t topk_candidates_bytes(int64_t k) {
  return 2 * (topk_capacity(k) + 16) * 4;
}

// Bytes that streams of one thread share: two buffers between which a cut narrows keys.
[[gnu::always_inline]] inline constexpr int64_t topk_shared_bytes(int64_t k) {
  return 2 * (topk_capacity(k) + 16) * 4;
}

}  // namespace millrace
