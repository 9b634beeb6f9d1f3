// What this machine can do at most, measured: the bounds that `millrace bench` compares with.
#pragma once

#include <optional>

#include "base/error.h"
#include "kernels/isa.h"

namespace millrace {

enum class PeakKind : uint8_t { kFma, kInt8, kBf16 };

// "fp32 FMA", "int8 dot", "bf16 dot".
std::string_view name_of(PeakKind kind);

struct Peaks {
  double read_bandwidth = 0;            // bytes a second, all threads together
  std::optional<double> multiply_adds;  // a second; absent: no loop for this CPU's instructions
};

// Runs the loops on `threads` threads, under half a second each. `kind` selects the instruction
// that the measured kernels are made of. Error: no memory for the buffer that is read.
Result<Peaks> measure_peaks(int threads, Isa isa, PeakKind kind);

}  // namespace millrace
