#include "kernels/attention_mla.h"

#include "kernels/attention_mla_scratch.h"

namespace millrace {

extern const MlaKernels kMlaKernelsPortable;
#if defined(__x86_64__)
extern const MlaKernels kMlaKernelsAvx2;
extern const MlaKernels kMlaKernelsAvx512;
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

}  // namespace millrace
