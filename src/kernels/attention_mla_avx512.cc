#include "kernels/attention_mla_float_impl.h"

namespace millrace {

extern const MlaKernels kMlaKernelsAvx512;
const MlaKernels kMlaKernelsAvx512 = make_mla_kernels("avx512");

}  // namespace millrace
