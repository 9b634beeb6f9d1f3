#include "kernels/attention_mla.h"

#include "kernels/attention_mla_scratch.h"

namespace millrace {

extern const MlaKernels kMlaKernelsPortable;
#if defined(__x86_64__)
extern const MlaKernels kMlaKernelsAvx2;
extern const MlaKernels kMlaKernelsAvx512;
extern const MlaKernels kMlaKernelsAvx512Bf16;
#endif

int64_t mla_scratch_bytes(int64_t latent, int64_t rope, int num_heads) {
  return mla_scratch(latent, rope, num_heads).total * int64_t{sizeof(float)};
}

const MlaKernels& mla_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kMlaKernelsAvx512;
  if (isa == Isa::kAvx2) return kMlaKernelsAvx2;
#endif
  static_cast<void>(isa);
  return kMlaKernelsPortable;
}

const MlaKernels& mla_kernels(Isa isa, bool bf16_class, const MlaLayerView& cache) {
#if defined(__x86_64__)
  if (bf16_class && cache.dtype == DType::kBF16 && (cache.latent + cache.rope) % 2 == 0) {
    return kMlaKernelsAvx512Bf16;
  }
#endif
  static_cast<void>(bf16_class);
  static_cast<void>(cache);
  return mla_kernels(isa);
}

}  // namespace millrace
