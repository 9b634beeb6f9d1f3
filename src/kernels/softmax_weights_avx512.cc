#include "kernels/softmax_weights_impl.h"

namespace millrace {

void softmax_weights_avx512(const float* logits, int64_t n, float max, float inverse_temperature,
                            float* weights) {
  softmax_weights_run(logits, n, max, inverse_temperature, weights);
}

}  // namespace millrace
