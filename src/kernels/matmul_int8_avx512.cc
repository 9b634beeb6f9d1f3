// The int8 matmul kernels for avx512.
#include "kernels/matmul_int8_impl.h"
#include "kernels/matmul_variants.h"

namespace millrace {

const Int8Kernels& int8_kernels_avx512() {
  static const Int8Kernels kernels =
      make_int8_kernels<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>("avx512");
  return kernels;
}

}  // namespace millrace
