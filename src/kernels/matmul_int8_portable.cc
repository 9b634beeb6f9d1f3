// The int8 matmul kernels for portable.
#include "kernels/matmul_int8_impl.h"
#include "kernels/matmul_variants.h"

namespace millrace {

const Int8Kernels& int8_kernels_portable() {
  static const Int8Kernels kernels = make_int8_kernels<1, 2, 3, 4>("portable");
  return kernels;
}

}  // namespace millrace
