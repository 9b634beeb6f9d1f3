#include "kernels/row_kernels_impl.h"

namespace millrace {

extern const RowKernels kRowKernelsAvx512;
const RowKernels kRowKernelsAvx512 = make_row_kernels("avx512");

}  // namespace millrace
