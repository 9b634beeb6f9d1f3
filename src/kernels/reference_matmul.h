// The plain form of matmul.h: docs/numerics.md, "Matmul", in scalar loops over checkpoint rows.
// Slow. The judge of every kernel, layout and instruction set, byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/activations.h"
#include "kernels/matmul_kernels.h"
#include "tensor/dtype.h"
#include "tensor/leaves.h"
#include "tensor/weight_format.h"

namespace millrace {

// A checkpoint tensor: n rows of k weights.
struct ReferenceWeight {
  WeightFormat format = WeightFormat::kF32;
  const std::byte* data = nullptr;
  int64_t n = 0;
  int64_t k = 0;
};

// As MatmulArgs, with rows as they come (x [rows][k]) in place of packed ones.
struct ReferenceMatmulArgs {
  ReferenceWeight weight;
  ReferenceWeight up;
  const float* x = nullptr;
  int64_t rows = 0;
  ActivationKind activations = ActivationKind::kF32;  // kF32 or kInt8
  const LeafCuts* leaves = nullptr;
  float leaf_scale = 1.0f;
  const float* bias = nullptr;
  const float* up_bias = nullptr;
  DType round = DType::kF32;
  Epilogue epilogue = Epilogue::kStore;
  float* out = nullptr;  // [rows][n]; for kAddResidual the residual, in place
};

// One row quantised to int8 by groups of 32, as pack_activations (activations.h) defines it.
struct QuantisedRow {
  std::vector<int8_t> codes;
  std::vector<float> scales;
};
QuantisedRow reference_quantise(const float* x, int64_t k);

// The chain of output `o` over inputs [begin, end), from +0.
float reference_chain_f32(const ReferenceWeight& weight, int64_t o, const float* x, int64_t begin,
                          int64_t end);
float reference_chain_int8(const ReferenceWeight& weight, int64_t o, const QuantisedRow& x,
                           int64_t begin, int64_t end);

// The tree over the 16 leaf sums of one output: ((0+1)+(2+3))+((4+5)+(6+7)) + the same of 8..15.
float reference_leaf_tree(const float leaves[kNumLeaves]);

void reference_matmul(const ReferenceMatmulArgs& args);

}  // namespace millrace
