#include "kernels/attention_gqa.h"

namespace millrace {

extern const AttentionKernels kAttentionKernelsPortable;
#if defined(__x86_64__)
extern const AttentionKernels kAttentionKernelsAvx2;
extern const AttentionKernels kAttentionKernelsAvx512;
#endif

int64_t attention_scratch_bytes(int64_t head_dim) {
  const int64_t padded = (head_dim + 15) / 16 * 16;
  // As lay_out() in attention_gqa_impl.h takes them: queries, a tile of values, nodes; scores, slot
  // sums.
  const int64_t floats = padded * (kAttentionRows + 16 + kAttentionNodes * kAttentionRows) +
                         (kAttentionTiles + 1) * kAttentionRows * 16;
  return floats * int64_t{sizeof(float)};
}

const AttentionKernels& attention_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kAttentionKernelsAvx512;
  if (isa == Isa::kAvx2) return kAttentionKernelsAvx2;
#endif
  static_cast<void>(isa);
  return kAttentionKernelsPortable;
}

}  // namespace millrace
