#include "kernels/reference_matmul.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/math.h"

namespace millrace {
namespace {

// One output over all of K: chains of the leaves and their tree, or one chain.
float reference_sum(const ReferenceMatmulArgs& args, const ReferenceWeight& weight, int64_t o,
                    const float* x, const QuantisedRow& quantised) {
  const auto chain = [&](int64_t begin, int64_t end) {
    return args.activations == ActivationKind::kInt8
               ? reference_chain_int8(weight, o, quantised, begin, end)
               : reference_chain_f32(weight, o, x, begin, end);
  };
  if (args.leaves == nullptr) return chain(0, weight.k);
  float leaves[kNumLeaves];
  for (int leaf = 0; leaf < kNumLeaves; ++leaf) {
    leaves[leaf] = chain(args.leaves->begin(leaf), args.leaves->end(leaf)) * args.leaf_scale;
  }
  return reference_leaf_tree(leaves);
}

}  // namespace

QuantisedRow reference_quantise(const float* x, int64_t k) {
  QuantisedRow row{std::vector<int8_t>(static_cast<size_t>(k)),
                   std::vector<float>(static_cast<size_t>(k / kActivationGroup))};
  for (int64_t group = 0; group < k / kActivationGroup; ++group) {
    const float* values = x + group * kActivationGroup;
    float amax = 0.0f;
    bool finite = true;
    for (int i = 0; i < kActivationGroup; ++i) {
      finite = finite && std::isfinite(values[i]);
      if (std::fabs(values[i]) > amax) amax = std::fabs(values[i]);
    }
    float& scale = row.scales[static_cast<size_t>(group)];
    if (!finite) {
      scale = std::numeric_limits<float>::quiet_NaN();
    } else if (amax < 0x1p-120f) {
      scale = 0.0f;
    } else {
      scale = amax / 127.0f;
      const float inverse = 127.0f / amax;
      for (int i = 0; i < kActivationGroup; ++i) {
        row.codes[static_cast<size_t>(group * kActivationGroup + i)] =
            static_cast<int8_t>(std::nearbyint(values[i] * inverse));
      }
    }
  }
  return row;
}

float reference_chain_f32(const ReferenceWeight& weight, int64_t o, const float* x, int64_t begin,
                          int64_t end) {
  std::vector<float> row(static_cast<size_t>(weight.k));
  dequantize_row(weight.format, weight.data + o * row_bytes(weight.format, weight.k), row.data(),
                 weight.k);
  float acc = 0.0f;
  for (int64_t i = begin; i < end; ++i) acc = std::fma(x[i], row[static_cast<size_t>(i)], acc);
  return acc;
}

float reference_chain_int8(const ReferenceWeight& weight, int64_t o, const QuantisedRow& x,
                           int64_t begin, int64_t end) {
  const FormatInfo& facts = info(weight.format);
  std::vector<uint8_t> codes(static_cast<size_t>(weight.k));
  std::vector<float> scales(static_cast<size_t>(weight.k / facts.group));
  std::vector<float> mins(scales.size());
  unpack_row(weight.format, weight.data + o * row_bytes(weight.format, weight.k), weight.k,
             codes.data(), scales.data(), mins.data());
  float acc = 0.0f;
  for (int64_t at = begin; at < end; at += facts.group) {
    int32_t dot = 0;
    int32_t sum = 0;
    for (int64_t i = at; i < at + facts.group; ++i) {
      const auto index = static_cast<size_t>(i);
      dot += (codes[index] - facts.offset) * x.codes[index];
      sum += x.codes[index];
    }
    const auto group = static_cast<size_t>(at / facts.group);
    const float x_scale = x.scales[static_cast<size_t>(at / kActivationGroup)];
    acc = std::fma(static_cast<float>(dot), scales[group] * x_scale, acc);
    if (facts.has_min) acc = std::fma(mins[group], x_scale * static_cast<float>(sum), acc);
  }
  return acc;
}

float reference_leaf_tree(const float leaves[kNumLeaves]) {
  const auto eight = [](const float* a) {
    return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
  };
  return eight(leaves) + eight(leaves + 8);
}

void reference_matmul(const ReferenceMatmulArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.weight.k;
    QuantisedRow quantised;
    if (args.activations == ActivationKind::kInt8) quantised = reference_quantise(x, args.weight.k);
    for (int64_t o = 0; o < args.weight.n; ++o) {
      float& out = args.out[row * args.weight.n + o];
      float sum = reference_sum(args, args.weight, o, x, quantised);
      if (args.bias != nullptr) sum += args.bias[o];
      if (args.epilogue == Epilogue::kStore) {
        out = round_to(args.round, sum);
      } else if (args.epilogue == Epilogue::kAddResidual) {
        out = round_to(args.round, out + round_to(args.round, sum));
      } else {
        float up = reference_sum(args, args.up, o, x, quantised);
        if (args.up_bias != nullptr) up += args.up_bias[o];
        out = round_to(args.round, silu(sum) * up);
      }
    }
  }
}

}  // namespace millrace
