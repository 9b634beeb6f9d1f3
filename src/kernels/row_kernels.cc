#include "kernels/row_kernels.h"

namespace millrace {

extern const RowKernels kRowKernelsPortable;
#if defined(__x86_64__)
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;
#endif

const RowKernels& row_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kRowKernelsAvx512;
  if (isa == Isa::kAvx2) return kRowKernelsAvx2;
#endif
  static_cast<void>(isa);
  return kRowKernelsPortable;
}

}  // namespace millrace
