// Element by element steps: gated activation, residual add, rounding.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// out = round(silu(gate) * up), silu as in math.h.
struct GatedActivationArgs {
  const float* gate = nullptr;  // [rows][gate_stride]
  int64_t gate_stride = 0;
  const float* up = nullptr;  // [rows][up_stride]
  int64_t up_stride = 0;
  float* out = nullptr;  // [rows][out_stride]; may be gate or up
  int64_t out_stride = 0;
  int64_t n = 0;  // elements of a row
  DType dtype = DType::kF32;
};

// out = round(a + b).
struct AddArgs {
  const float* a = nullptr;  // [rows][a_stride]
  int64_t a_stride = 0;
  const float* b = nullptr;  // [rows][b_stride]
  int64_t b_stride = 0;
  float* out = nullptr;  // [rows][out_stride]; may be a or b
  int64_t out_stride = 0;
  int64_t n = 0;  // elements of a row
  DType dtype = DType::kF32;
};

// x = round(x * factor), in place; factor 1 changes nothing but the type.
struct RoundArgs {
  float* x = nullptr;  // [rows][stride]
  int64_t stride = 0;
  int64_t n = 0;  // elements of a row
  float factor = 1.0f;
  DType dtype = DType::kF32;
};
using RoundFunction = void (*)(const RoundArgs& args, int64_t row_begin, int64_t row_end);

// Both compute rows [row_begin, row_end).
using GatedActivationFunction = void (*)(const GatedActivationArgs& args, int64_t row_begin,
                                         int64_t row_end);
using AddFunction = void (*)(const AddArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace millrace
