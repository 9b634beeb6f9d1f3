// The roofs of the machine, for benchmarks: loops that do nothing but one kind of work.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// Each runs `rounds` rounds of an instruction in registers and returns the multiply-adds done in
// one round. The CPU must have the instruction set that the name ends with.
double roof_int8_avx512vnni(int64_t rounds);
double roof_fma_avx512(int64_t rounds);
double roof_bf16_avx512bf16(int64_t rounds);

// Reads `bytes` (a multiple of 512) once; the result only keeps the compiler from skipping it.
int64_t roof_read_avx512(const std::byte* memory, int64_t bytes);

}  // namespace millrace
