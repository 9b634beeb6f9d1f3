// Instruction sets: which ones this CPU has, and the one that the kernels of a process use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"

namespace millrace {

// Sets of kernels, each a superset of the one before. All give the same bits.
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Vnni };

inline constexpr int kNumIsas = 4;

// "portable", "avx2", "avx512", "avx512vnni": the values of MILLRACE_ISA.
std::string_view name_of(Isa isa);

// The instruction sets that a CPU with these features can run, least first.
std::vector<Isa> available_isas(const CpuFeatures& features);

// The best available instruction set, or the forced one. Error if `forced` is no known name, or if
// this CPU cannot run it; both list what is possible.
Result<Isa> resolve_isa(const std::optional<std::string>& forced, const CpuFeatures& features);

// Whether the kernels of `isa` compute in the numeric class bf16 on a CPU with these features: it
// takes the CPU's bf16 dot products, and lesser kernels than kAvx512Vnni do without them.
bool has_bf16_class(Isa isa, const CpuFeatures& features);

}  // namespace millrace
