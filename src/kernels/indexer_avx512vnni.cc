#include "kernels/indexer_impl.h"

namespace millrace {

extern const IndexerKernels kIndexerKernelsAvx512Vnni;
const IndexerKernels kIndexerKernelsAvx512Vnni = make_indexer_kernels("avx512vnni");

}  // namespace millrace
