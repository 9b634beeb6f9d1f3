#include "kernels/attention_mla_float_impl.h"

namespace millrace {

extern const MlaKernels kMlaKernelsPortable;
const MlaKernels kMlaKernelsPortable = make_mla_kernels("portable");

}  // namespace millrace
