#include "kernels/indexer_impl.h"

namespace millrace {

extern const IndexerKernels kIndexerKernelsPortable;
const IndexerKernels kIndexerKernelsPortable = make_indexer_kernels("portable");

}  // namespace millrace
