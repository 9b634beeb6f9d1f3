#include "kernels/indexer.h"

#include "kernels/indexer_scratch.h"

namespace millrace {

extern const IndexerKernels kIndexerKernelsPortable;
#if defined(__x86_64__)
extern const IndexerKernels kIndexerKernelsAvx2;
extern const IndexerKernels kIndexerKernelsAvx512;
extern const IndexerKernels kIndexerKernelsAvx512Vnni;
#endif

int64_t indexer_scratch_bytes(int num_heads, int index_dim, int topk) {
  return IndexerScratchSizes::of(num_heads, index_dim, topk).total;
}

const IndexerKernels& indexer_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512Vnni) return kIndexerKernelsAvx512Vnni;
  if (isa == Isa::kAvx512) return kIndexerKernelsAvx512;
  if (isa == Isa::kAvx2) return kIndexerKernelsAvx2;
#endif
  static_cast<void>(isa);
  return kIndexerKernelsPortable;
}

}  // namespace millrace
