// Arithmetic of configurations that files of every kind share.
#pragma once

#include <cstdint>
#include <vector>

#include "config/model_config.h"

namespace millrace {

// m(s) = 0.1 s ln(factor) + 1, and 1 if factor <= 1: YaRN's correction of the scores' size.
double yarn_mscale(double factor, double s);

// YaRN's multiplier of cos and sin when none is given: m(mscale) / m(mscale_all_dim) if both are
// set and not 0, else m(1), where m(s) is yarn_mscale(factor, s).
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

// (nope + rope)^-0.5 times `factor`.
float mla_softmax_scale(const MlaConfig& mla, double factor);

// IndexerConfig::is_full of a schedule: layer l is full if frequency divides max(l - offset + 1,
// 0).
std::vector<uint8_t> indexer_schedule(int num_layers, int64_t frequency, int64_t offset);

}  // namespace millrace
