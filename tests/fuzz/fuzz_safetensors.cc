// Fuzz target: one safetensors file.
#include "fuzz_check.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto input = std::as_bytes(std::span(data, size));
  const auto header = parse_safetensors(input);
  if (!header) {
    fuzz::check_error(header.error());
    return 0;
  }
  for (const SafetensorsTensor& tensor : header->tensors) {
    fuzz::check_within(tensor.bytes, input);
    fuzz::touch(tensor.bytes);
  }
  return 0;
}
