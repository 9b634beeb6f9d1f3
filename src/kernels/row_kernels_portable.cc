#include "kernels/row_kernels_impl.h"

namespace millrace {

extern const RowKernels kRowKernelsPortable;
const RowKernels kRowKernelsPortable = make_row_kernels("portable");

}  // namespace millrace
