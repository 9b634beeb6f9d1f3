#include "kernels/reference_ops.h"

#include <cmath>
#include <limits>

#include "base/check.h"

namespace millrace {
namespace {

void rms_norm_run(const RmsNormArgs& args, const float* x, float* out) {
  float slots[16] = {};
  for (int64_t i = 0; i < args.n; ++i) slots[i % 16] = std::fma(x[i], x[i], slots[i % 16]);
  const float mean = reference_tree16(slots) / static_cast<float>(args.n);
  const float r = 1.0f / std::sqrt(mean + args.eps);
  for (int64_t i = 0; i < args.n; ++i) {
    out[i] = round_to(args.dtype, round_to(args.dtype, x[i] * r) * args.weight[i]);
  }
}

void write_element(DType dtype, std::byte* pool, int64_t index, float value) {
  switch (dtype) {
    case DType::kF32:
      reinterpret_cast<float*>(pool)[index] = value;
      return;
    case DType::kF16:
      reinterpret_cast<uint16_t*>(pool)[index] = f32_to_f16(value);
      return;
    case DType::kBF16:
      reinterpret_cast<uint16_t*>(pool)[index] = f32_to_bf16(value);
      return;
    default:
      MR_CHECK(false, "no cache of type {}", name_of(dtype));
  }
}

float int8_scale(const float* row, int n) {
  float amax = 0;
  for (int d = 0; d < n; ++d) {
    const float magnitude = std::fabs(row[d]);
    if (std::isnan(magnitude)) return magnitude / 127.0f;
    if (magnitude > amax) amax = magnitude;
  }
  return amax / 127.0f;
}

int8_t int8_code(float value, float scale) {
  if (!(scale > 0) || std::isinf(scale)) return 0;
  const float code = std::nearbyint(value / scale);
  return static_cast<int8_t>(code > 127.0f ? 127.0f : code < -127.0f ? -127.0f : code);
}

}  // namespace

float reference_tree16(const float* values) {
  float level[16];
  for (int i = 0; i < 16; ++i) level[i] = values[i];
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) level[i] = level[2 * i] + level[2 * i + 1];
  }
  return level[0];
}

float reference_bf16_dot(float acc, Bf16Pair a, Bf16Pair b) {
  const auto flushed = [](float x) {
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
  };
  const auto add = [&](uint16_t x, uint16_t y) {
    const float a = flushed(bf16_to_f32(x));
    const float b = flushed(bf16_to_f32(y));
    const float c = flushed(acc);
    acc = flushed(std::fma(a, b, c));
    // What would be smaller than the smallest normal number if exponents had no end counts as zero,
    // though the nearest float is that number.
    constexpr float kSmallest = std::numeric_limits<float>::min();
    if (std::fabs(acc) != kSmallest) return;
    const double rest = std::fma(double{a}, double{b}, double{c} - double{acc});
    if (std::copysign(1.0, acc) * rest < -0x1p-151) acc = std::copysign(0.0f, acc);
  };
  add(a.second, b.second);
  add(a.first, b.first);
  return acc;
}

void reference_rms_norm(const RmsNormArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int group = 0; group < args.num_groups; ++group) {
      const int64_t offset = group * args.group_stride;
      rms_norm_run(args, args.x + row * args.x_stride + offset,
                   args.out + row * args.out_stride + offset);
    }
  }
}

void reference_rope(const RopeArgs& args, int64_t row_begin, int64_t row_end) {
  const int half = args.rotary_dim / 2;
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int head = 0; head < args.num_heads; ++head) {
      float* x = args.x + row * args.row_stride + int64_t{head} * args.head_dim;
      for (int i = 0; i < half; ++i) {
        float& first = x[args.interleaved ? 2 * i : i];
        float& second = x[args.interleaved ? 2 * i + 1 : i + half];
        const float c = args.cos[row * half + i];
        const float s = args.sin[row * half + i];
        const float a = first;
        const float b = second;
        first = round_to(args.dtype, std::fma(a, c, -(b * s)));
        second = round_to(args.dtype, std::fma(b, c, a * s));
      }
    }
  }
}

void reference_layer_norm(const LayerNormArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* out = args.out + row * args.out_stride;
    float sums[16] = {};
    for (int64_t i = 0; i < args.n; ++i) sums[i % 16] = sums[i % 16] + x[i];
    const float mean = reference_tree16(sums) / static_cast<float>(args.n);
    float squares[16] = {};
    for (int64_t i = 0; i < args.n; ++i) {
      squares[i % 16] = std::fma(x[i] - mean, x[i] - mean, squares[i % 16]);
    }
    const float variance = reference_tree16(squares) / static_cast<float>(args.n);
    const float r = 1.0f / std::sqrt(variance + args.eps);
    for (int64_t i = 0; i < args.n; ++i) {
      out[i] = round_to(args.dtype, std::fma((x[i] - mean) * r, args.weight[i], args.bias[i]));
    }
  }
}

void reference_expert_combine(const ExpertCombineArgs& args, int64_t token) {
  const int64_t first = token * args.experts_per_token;
  for (int64_t i = 0; i < args.n; ++i) {
    float leaves[16];
    for (int64_t leaf = 0; leaf < 16; ++leaf) {
      leaves[leaf] = 0.0f;
      for (int64_t a = first; a < first + args.experts_per_token; ++a) {
        const int64_t expert = args.experts[a];
        if (expert < args.num_experts * leaf / 16) continue;
        if (expert >= args.num_experts * (leaf + 1) / 16) continue;
        leaves[leaf] = std::fma(args.weights[a], args.expert_out[args.assignments[a] * args.n + i],
                                leaves[leaf]);
      }
    }
    float sum = reference_tree16(leaves);
    if (args.shared != nullptr) sum = sum + args.shared[token * args.n + i];
    float& residual = args.residual[token * args.residual_stride + i];
    residual = round_to(args.dtype, residual + round_to(args.dtype, sum));
  }
}

void reference_kv_write(const KvWriteArgs& args, int64_t token_begin, int64_t token_end) {
  const KvLayout& layout = args.cache.layout;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t slot = args.slot_mapping[token];
    if (slot < 0) continue;
    const int64_t block = slot / layout.block_size;
    const int offset = static_cast<int>(slot % layout.block_size);
    for (int head = 0; head < layout.num_kv_heads; ++head) {
      const float* k = args.k + token * args.k_stride + int64_t{head} * layout.head_dim;
      const float* v = args.v + token * args.v_stride + int64_t{head} * layout.head_dim;
      if (layout.has_scales()) {
        const float k_scale = int8_scale(k, layout.head_dim);
        const float v_scale = int8_scale(v, layout.head_dim);
        args.cache.k_scale[layout.scale(block, head, offset)] = k_scale;
        args.cache.v_scale[layout.scale(block, head, offset)] = v_scale;
        auto* k_codes = reinterpret_cast<int8_t*>(args.cache.k);
        auto* v_codes = reinterpret_cast<int8_t*>(args.cache.v);
        for (int d = 0; d < layout.head_dim; ++d) {
          k_codes[layout.k_element(block, head, offset, d)] = int8_code(k[d], k_scale);
          v_codes[layout.v_row(block, head, offset) + d] = int8_code(v[d], v_scale);
        }
        continue;
      }
      for (int d = 0; d < layout.head_dim; ++d) {
        write_element(layout.dtype, args.cache.k, layout.k_element(block, head, offset, d), k[d]);
        write_element(layout.dtype, args.cache.v, layout.v_row(block, head, offset) + d, v[d]);
      }
    }
  }
}

}  // namespace millrace
