// Element by element steps: scaling and rounding. (Gated activation and residual add are done by
// the matmuls that make their operands: matmul.h.)
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// x = round(x * factor), in place; factor 1 changes nothing but the type.
struct RoundArgs {
  float* x = nullptr;  // [rows][stride]
  int64_t stride = 0;
  int64_t n = 0;  // elements of a row
  float factor = 1.0f;
  DType dtype = DType::kF32;
};
// Rows [row_begin, row_end).
using RoundFunction = void (*)(const RoundArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace millrace
