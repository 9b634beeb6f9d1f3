// Random checkpoint tensors and activations for the tests of matmul and packing.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/check.h"
#include "kernels/matmul.h"
#include "kernels/reference_matmul.h"
#include "tensor/dtype.h"
#include "tensor/packing.h"
#include "tensor/weight_format.h"

namespace millrace {

// Offsets of the halves (scale, minimum) in a block of a quantised format; -1: there is none.
inline std::pair<int, int> scale_offsets(WeightFormat format) {
  if (format == WeightFormat::kQ6_K) return {208, -1};
  return {0, info(format).has_min ? 2 : -1};
}

// A checkpoint tensor that owns its bytes.
struct TestTensor {
  WeightFormat format;
  int64_t n;
  int64_t k;
  std::vector<std::byte> bytes;

  ReferenceWeight reference() const { return {format, bytes.data(), n, k}; }
  PackSource source() const { return {.format = format, .data = bytes.data(), .n = n}; }
};

// Random codes, scales of both signs within three powers of ten.
inline TestTensor random_tensor(WeightFormat format, int64_t n, int64_t k, std::mt19937& random) {
  TestTensor tensor{format, n, k, {}};
  const FormatInfo& facts = info(format);
  const int64_t row_size = row_bytes(format, k);
  tensor.bytes.resize(static_cast<size_t>(n * row_size));
  std::normal_distribution<float> normal;
  const auto put_half = [&](std::byte* to, float value) {
    const uint16_t half = f32_to_f16(value);
    std::memcpy(to, &half, 2);
  };
  if (facts.quantized) {
    for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(random() & 0xff);
    const auto [scale, min] = scale_offsets(format);
    for (int64_t at = 0; at < n * row_size; at += facts.bytes) {
      std::byte* block = tensor.bytes.data() + at;
      put_half(block + scale, normal(random) * 0.01f);
      if (min >= 0) put_half(block + min, normal(random) * 0.1f);
    }
    return tensor;
  }
  for (int64_t i = 0; i < n * k; ++i) {
    const float value = normal(random) * 0.05f;
    std::byte* to = tensor.bytes.data() + i * facts.bytes;
    const uint16_t bf16 = f32_to_bf16(value);
    if (format == WeightFormat::kF32) std::memcpy(to, &value, 4);
    if (format == WeightFormat::kF16) put_half(to, value);
    if (format == WeightFormat::kBF16) std::memcpy(to, &bf16, 2);
  }
  return tensor;
}

inline std::vector<float> random_floats(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// A packed matrix that owns its panels.
struct TestMatrix {
  PackedMatrix matrix;
  std::vector<std::byte> storage;
};

inline TestMatrix pack(const std::vector<PackSource>& sources, int64_t k) {
  int64_t n = 0;
  for (const PackSource& source : sources) n += source.n;
  Result<PackedMatrix> layout = packed_layout(sources.front().format, n, k);
  MR_CHECK(layout.has_value(), "{}", layout.error().message);
  TestMatrix packed{*layout, {}};
  // Garbage, to see that padding is written.
  packed.storage.assign(static_cast<size_t>(packed.matrix.total_bytes()), std::byte{0xff});
  packed.matrix.panels = packed.storage.data();
  pack_panels(sources, packed.matrix, 0, packed.matrix.num_panels(), packed.storage.data());
  return packed;
}

inline TestMatrix pack(const TestTensor& tensor) { return pack({tensor.source()}, tensor.k); }

// A matmul that packs its outputs gives what packing its plain outputs does: `args` with the
// outputs `out` [rows][out_stride] that it had.
inline void expect_packed_outputs(MatmulArgs args, const float* out, int64_t out_stride,
                                  int num_threads) {
  const PackedActivations& input = args.input;
  args.out = nullptr;
  args.packed_out =
      packed_activations(*args.kernels, input.kind, input.rows, args.weight->n, nullptr);
  const auto size = static_cast<size_t>(args.packed_out.bytes());
  // A byte more, to see that no more is written.
  std::vector<std::byte> expected(size + 1, std::byte{0xff});
  std::vector<std::byte> packed(size + 1, std::byte{0xff});
  args.packed_out.data = expected.data();
  pack_activations(*args.kernels, out, out_stride, 0, input.rows, args.packed_out);
  args.packed_out.data = packed.data();
  const MatmulPlan plan = plan_matmul(args, num_threads);
  std::vector<std::byte> scratch(static_cast<size_t>(plan.scratch_bytes) + 64, std::byte{0xff});
  for (int64_t item = plan.num_items - 1; item >= 0; --item) {
    matmul_run_items(args, plan, item, item + 1, scratch.data());
  }
  EXPECT_EQ(scratch[static_cast<size_t>(plan.scratch_bytes)], std::byte{0xff});
  EXPECT_EQ(std::memcmp(packed.data(), expected.data(), packed.size()), 0)
      << "packed outputs, " << args.kernels->name << ", rows " << input.rows << ", n "
      << args.weight->n << ", k " << input.k;
}

}  // namespace millrace
