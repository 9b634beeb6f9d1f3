#include "kernels/attention_mla_float_impl.h"

namespace millrace {

extern const MlaKernels kMlaKernelsAvx2;
const MlaKernels kMlaKernelsAvx2 = make_mla_kernels("avx2");

}  // namespace millrace
