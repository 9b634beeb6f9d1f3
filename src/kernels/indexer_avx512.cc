#include "kernels/indexer_impl.h"

namespace millrace {

extern const IndexerKernels kIndexerKernelsAvx512;
const IndexerKernels kIndexerKernelsAvx512 = make_indexer_kernels("avx512");

}  // namespace millrace
