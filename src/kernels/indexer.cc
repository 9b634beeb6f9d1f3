#include "kernels/indexer.h"

#include "kernels/indexer_layout.h"

namespace millrace {

extern const IndexerKernels kIndexerKernelsPortable;
#if defined(__x86_64__)
extern const IndexerKernels kIndexerKernelsAvx2;
extern const IndexerKernels kIndexerKernelsAvx512;
extern const IndexerKernels kIndexerKernelsAvx512Vnni;
#endif

int64_t index_query_bytes(int num_heads, int index_dim, DType index_dtype) {
  return IndexQueryLayout::of(num_heads, index_dim, index_dtype).bytes;
}

int64_t indexer_scratch_bytes(int topk) { return IndexerScratchSizes::of(topk).total; }

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
