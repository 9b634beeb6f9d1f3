// The float matmul kernels for avx512.
#include "kernels/matmul_float_impl.h"
#include "kernels/matmul_variants.h"

namespace millrace {

const FloatKernels& float_kernels_avx512() {
  static const FloatKernels kernels =
      make_float_kernels<2, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>("avx512");
  return kernels;
}

}  // namespace millrace
