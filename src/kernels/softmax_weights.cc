#include "kernels/softmax_weights.h"

namespace millrace {

void softmax_weights_portable(const float*, int64_t, float, float, float*);
#if defined(__x86_64__)
void softmax_weights_avx2(const float*, int64_t, float, float, float*);
void softmax_weights_avx512(const float*, int64_t, float, float, float*);
#endif

SoftmaxWeightsFunction softmax_weights(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return softmax_weights_avx512;
  if (isa == Isa::kAvx2) return softmax_weights_avx2;
#endif
  static_cast<void>(isa);
  return softmax_weights_portable;
}

}  // namespace millrace
