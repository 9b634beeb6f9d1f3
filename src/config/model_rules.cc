#include "config/model_rules.h"

#include <algorithm>
#include <cmath>

namespace millrace {

double yarn_mscale(double factor, double s) {
  return factor <= 1 ? 1.0 : 0.1 * s * std::log(factor) + 1.0;
}

double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  if (mscale != 0 && mscale_all_dim != 0) {
    return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim);
  }
  return yarn_mscale(factor, 1);
}

float mla_softmax_scale(const MlaConfig& mla, double factor) {
  return static_cast<float>(factor / std::sqrt(static_cast<double>(mla.qk_head_dim())));
}

std::vector<uint8_t> indexer_schedule(int num_layers, int64_t frequency, int64_t offset) {
  std::vector<uint8_t> is_full(static_cast<size_t>(num_layers));
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const int64_t since = std::max<int64_t>(layer - offset + 1, 0);
    is_full[static_cast<size_t>(layer)] = since % frequency == 0;
  }
  return is_full;
}

}  // namespace millrace
