// The kernel tables of each instruction set, for matmul_kernels.cc. Plain declarations only.
#pragma once

#include "kernels/matmul_kernels.h"

namespace millrace {

const FloatKernels& float_kernels_portable();
const FloatKernels& float_kernels_avx2();
const FloatKernels& float_kernels_avx512();

const Int8Kernels& int8_kernels_portable();
const Int8Kernels& int8_kernels_avx2();
const Int8Kernels& int8_kernels_avx512();
const Int8Kernels& int8_kernels_avx512vnni();

const Bf16Kernels& bf16_kernels_avx512();
const Bf16Kernels& bf16_kernels_avx512bf16();

}  // namespace millrace
