#include "kernels/elementwise.h"

namespace millrace {

int64_t argmax(const float* values, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    // False for a NaN candidate; a NaN (or -inf) best gives way to the first larger number.
    if (values[i] > values[best]) {
      best = i;
    } else if (values[best] != values[best] && values[i] > -__builtin_inff()) {
      best = i;
    }
  }
  return best;
}

}  // namespace millrace
