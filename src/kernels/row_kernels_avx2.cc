#include "kernels/row_kernels_impl.h"

namespace millrace {

extern const RowKernels kRowKernelsAvx2;
const RowKernels kRowKernelsAvx2 = make_row_kernels("avx2");

}  // namespace millrace
