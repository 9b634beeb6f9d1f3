// The float matmul kernels for avx2.
#include "kernels/matmul_float_impl.h"
#include "kernels/matmul_variants.h"

namespace millrace {

const FloatKernels& float_kernels_avx2() {
  static const FloatKernels kernels = make_float_kernels<1, 4, 1, 2, 3, 4, 5, 6>("avx2");
  return kernels;
}

}  // namespace millrace
