#include "kernels/indexer_impl.h"

namespace millrace {

extern const IndexerKernels kIndexerKernelsAvx2;
const IndexerKernels kIndexerKernelsAvx2 = make_indexer_kernels("avx2");

}  // namespace millrace
