// For tests: matrices of golden models replaced by codes as quantised checkpoints store them.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "tensor/dtype.h"
#include "weights/test_models.h"

namespace millrace::testing {

constexpr int kGroup = 32;

// A matrix of 4-bit codes with what they are worth, in the words of each packing.
struct Codes {
  int64_t n;
  int64_t k;
  std::vector<int> codes;     // [n][k]
  std::vector<int> zeros;     // [n][groups]
  std::vector<float> scales;  // [n][groups]; halves and bf16 at once

  Codes(int64_t n_, int64_t k_, bool symmetric, std::mt19937& random) : n(n_), k(k_) {
    for (int64_t i = 0; i < n * k; ++i) codes.push_back(static_cast<int>(random() % 16));
    for (int64_t i = 0; i < n * groups(); ++i) {
      zeros.push_back(symmetric ? 8 : static_cast<int>(1 + random() % 15));
      scales.push_back(static_cast<float>(1 + random() % 127) / 1024);
    }
  }

  int64_t groups() const { return k / kGroup; }
  std::vector<float> values() const {
    std::vector<float> all;
    for (int64_t i = 0; i < n * k; ++i) {
      const auto at = static_cast<size_t>(i / k * groups() + i % k / kGroup);
      all.push_back(scales[at] * static_cast<float>(codes[static_cast<size_t>(i)] - zeros[at]));
    }
    return all;
  }
};

inline uint32_t& word(std::vector<uint32_t>& words, int64_t index) {
  return words[static_cast<size_t>(index)];
}

// Puts codes in place of <module>.weight.
inline void put_gptq(ChangedModel& model, const std::string& module, const Codes& m) {
  std::vector<uint32_t> qweight(static_cast<size_t>(m.n * m.k / 8));
  std::vector<uint32_t> qzeros(static_cast<size_t>(m.groups() * m.n / 8));
  std::vector<uint16_t> scales(static_cast<size_t>(m.groups() * m.n));
  std::vector<int32_t> g_idx;
  for (int64_t o = 0; o < m.n; ++o) {
    for (int64_t i = 0; i < m.k; ++i) {
      const auto code = static_cast<uint32_t>(m.codes[static_cast<size_t>(o * m.k + i)]);
      word(qweight, i / 8 * m.n + o) |= code << (i % 8 * 4);
    }
    for (int64_t g = 0; g < m.groups(); ++g) {
      const auto at = static_cast<size_t>(o * m.groups() + g);
      word(qzeros, g * m.n / 8 + o / 8) |= static_cast<uint32_t>(m.zeros[at] - 1) << (o % 8 * 4);
      scales[static_cast<size_t>(g * m.n + o)] = f32_to_f16(m.scales[at]);
    }
  }
  g_idx.reserve(static_cast<size_t>(m.k));
  for (int64_t i = 0; i < m.k; ++i) g_idx.push_back(static_cast<int32_t>(i / kGroup));
  model.tensors.erase(module + ".weight");
  model.set(module + ".qweight", DType::kI32, {m.k / 8, m.n}, qweight);
  model.set(module + ".qzeros", DType::kI32, {m.groups(), m.n / 8}, qzeros);
  model.set(module + ".scales", DType::kF16, {m.groups(), m.n}, scales);
  model.set(module + ".g_idx", DType::kI32, {m.k}, g_idx);
}

inline void put_awq(ChangedModel& model, const std::string& module, const Codes& m) {
  constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<uint32_t> qweight(static_cast<size_t>(m.n * m.k / 8));
  std::vector<uint32_t> qzeros(static_cast<size_t>(m.groups() * m.n / 8));
  std::vector<uint16_t> scales(static_cast<size_t>(m.groups() * m.n));
  for (int64_t c = 0; c < m.n / 8; ++c) {
    for (int j = 0; j < 8; ++j) {
      const int64_t o = c * 8 + kOrder[j];
      for (int64_t i = 0; i < m.k; ++i) {
        const auto code = static_cast<uint32_t>(m.codes[static_cast<size_t>(o * m.k + i)]);
        word(qweight, i * m.n / 8 + c) |= code << (4 * j);
      }
      for (int64_t g = 0; g < m.groups(); ++g) {
        const auto at = static_cast<size_t>(o * m.groups() + g);
        word(qzeros, g * m.n / 8 + c) |= static_cast<uint32_t>(m.zeros[at]) << (4 * j);
        scales[static_cast<size_t>(g * m.n + o)] = f32_to_f16(m.scales[at]);
      }
    }
  }
  model.tensors.erase(module + ".weight");
  model.set(module + ".qweight", DType::kI32, {m.k, m.n / 8}, qweight);
  model.set(module + ".qzeros", DType::kI32, {m.groups(), m.n / 8}, qzeros);
  model.set(module + ".scales", DType::kF16, {m.groups(), m.n}, scales);
}

inline void put_compressed(ChangedModel& model, const std::string& module, const Codes& m,
                           bool symmetric) {
  std::vector<uint32_t> packed(static_cast<size_t>(m.n * m.k / 8));
  std::vector<uint32_t> zeros(static_cast<size_t>(m.groups() * m.n / 8));
  std::vector<uint16_t> scales;
  for (int64_t o = 0; o < m.n; ++o) {
    for (int64_t i = 0; i < m.k; ++i) {
      const auto code = static_cast<uint32_t>(m.codes[static_cast<size_t>(o * m.k + i)]);
      word(packed, o * m.k / 8 + i / 8) |= code << (i % 8 * 4);
    }
    for (int64_t g = 0; g < m.groups(); ++g) {
      const auto at = static_cast<size_t>(o * m.groups() + g);
      word(zeros, o / 8 * m.groups() + g) |= static_cast<uint32_t>(m.zeros[at]) << (o % 8 * 4);
      scales.push_back(f32_to_bf16(m.scales[at]));
    }
  }
  model.tensors.erase(module + ".weight");
  model.set(module + ".weight_packed", DType::kI32, {m.n, m.k / 8}, packed);
  model.set(module + ".weight_scale", DType::kBF16, {m.n, m.groups()}, scales);
  model.set(module + ".weight_shape", DType::kI64, {2}, std::vector<int64_t>{m.n, m.k});
  if (!symmetric) {
    model.set(module + ".weight_zero_point", DType::kI32, {m.n / 8, m.groups()}, zeros);
  }
}

// Codes [n][k] and scales of blocks of 128; gives the values.
inline std::vector<float> put_fp8(ChangedModel& model, const std::string& module, int64_t n,
                                  int64_t k, std::mt19937& random) {
  std::vector<uint8_t> codes(static_cast<size_t>(n * k));
  for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % 0x7f | (random() % 2) << 7);
  const int64_t across = (k + 127) / 128;
  std::vector<float> scales(static_cast<size_t>((n + 127) / 128 * across));
  for (float& scale : scales) scale = static_cast<float>(1 + random() % 1000) / 77777;
  std::vector<float> values;
  for (int64_t i = 0; i < n * k; ++i) {
    const float scale = scales[static_cast<size_t>(i / k / 128 * across + i % k / 128)];
    values.push_back(f8e4m3_to_f32(codes[static_cast<size_t>(i)]) * scale);
  }
  model.set(module + ".weight", DType::kF8E4M3, {n, k}, codes);
  model.set(module + ".weight_scale_inv", DType::kF32, {(n + 127) / 128, across}, scales);
  return values;
}

struct TestQuantization {
  QuantizationMethod method;
  bool symmetric;
};

inline QuantizationConfig quantization_of(QuantizationMethod method, bool symmetric) {
  QuantizationConfig config{.method = method};
  config.block_rows = config.block_cols = method == QuantizationMethod::kBlockFp8 ? 128 : 0;
  config.group_size = kGroup;
  config.symmetric = symmetric;
  config.zeros_less_one = method == QuantizationMethod::kGptq;
  return config;
}

// The same as config.json says it.
inline nlohmann::json quantization_json(const TestQuantization& quantization) {
  const bool symmetric = quantization.symmetric;
  switch (quantization.method) {
    case QuantizationMethod::kBlockFp8:
      return {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    case QuantizationMethod::kGptq:
      return {{"quant_method", "gptq"},
              {"bits", 4},
              {"group_size", kGroup},
              {"desc_act", false},
              {"sym", symmetric}};
    case QuantizationMethod::kAwq:
      return {{"quant_method", "awq"}, {"bits", 4}, {"group_size", kGroup}, {"zero_point", true}};
    case QuantizationMethod::kCompressedTensors:
      break;
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights",
               {{"num_bits", 4},
                {"type", "int"},
                {"strategy", "group"},
                {"group_size", kGroup},
                {"symmetric", symmetric}}}}}}}};
}

// Puts random codes in place of <module>.weight, [n, k]; gives what they are worth.
inline std::vector<float> put_quantised(ChangedModel& model, const std::string& module, int64_t n,
                                        int64_t k, const TestQuantization& quantization,
                                        std::mt19937& random) {
  const auto [method, symmetric] = quantization;
  if (method == QuantizationMethod::kBlockFp8) return put_fp8(model, module, n, k, random);
  const Codes codes(n, k, symmetric, random);
  if (method == QuantizationMethod::kGptq) put_gptq(model, module, codes);
  if (method == QuantizationMethod::kAwq) put_awq(model, module, codes);
  if (method == QuantizationMethod::kCompressedTensors) {
    put_compressed(model, module, codes, symmetric);
  }
  return codes.values();
}

}  // namespace millrace::testing
