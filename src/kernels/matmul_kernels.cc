#include "kernels/matmul_kernels.h"

#include "base/check.h"
#include "base/cpu.h"
#include "kernels/isa.h"
#include "kernels/matmul_variants.h"

namespace millrace {
namespace {

// Zen 4 has as many bf16 dot products a cycle as fma, and each is two products. Emerald Rapids has
// a quarter: two fma in their place are twice as fast. Other CPUs of Intel, not measured, are taken
// to be like it.
const Bf16Kernels& bf16_kernels() {
  return is_intel_cpu() ? bf16_kernels_avx512() : bf16_kernels_avx512bf16();
}

}  // namespace

const MatmulKernels& matmul_kernels(Isa isa, bool with_bf16) {
  switch (isa) {
    case Isa::kPortable: {
      static const MatmulKernels kernels{"portable", &float_kernels_portable(),
                                         &int8_kernels_portable(), nullptr};
      return kernels;
    }
    case Isa::kAvx2: {
      static const MatmulKernels kernels{"avx2", &float_kernels_avx2(), &int8_kernels_avx2(),
                                         nullptr};
      return kernels;
    }
    case Isa::kAvx512: {
      static const MatmulKernels kernels{"avx512", &float_kernels_avx512(), &int8_kernels_avx512(),
                                         nullptr};
      return kernels;
    }
    case Isa::kAvx512Vnni: {
      static const MatmulKernels kernels{"avx512vnni", &float_kernels_avx512(),
                                         &int8_kernels_avx512vnni(), nullptr};
      static const MatmulKernels kernels_with_bf16{"avx512vnni", &float_kernels_avx512(),
                                                   &int8_kernels_avx512vnni(), &bf16_kernels()};
      return with_bf16 ? kernels_with_bf16 : kernels;
    }
  }
  MR_CHECK(false, "bad instruction set");
}

}  // namespace millrace
