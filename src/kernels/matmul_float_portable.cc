// The float matmul kernels for portable.
#include "kernels/matmul_float_impl.h"
#include "kernels/matmul_variants.h"

namespace millrace {

const FloatKernels& float_kernels_portable() {
  static const FloatKernels kernels = make_float_kernels<1, 1, 1, 2, 3, 4>("portable");
  return kernels;
}

}  // namespace millrace
