// What every fuzz target asks of a parser's answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace millrace::fuzz {

// Ends the process unless the message is one line of sensible length.
void check_error(const Error& error);

// Reads every byte, so that a view beyond the input is found. Returns a sum to keep the reads
// alive.
uint64_t touch(std::span<const std::byte> bytes);

// Ends the process unless `view` lies within `input`.
void check_within(std::span<const std::byte> view, std::span<const std::byte> input);

}  // namespace millrace::fuzz

// The entry point, as libFuzzer calls it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
