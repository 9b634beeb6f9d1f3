// Fuzz target: one GGUF file, its weights and the configuration that it gives.
#include <algorithm>
#include <vector>

#include "config/model_config.h"
#include "fuzz_check.h"
#include "io/gguf.h"
#include "tensor/weight_format.h"

namespace {

void check_tensors(const millrace::GgufShard& shard, std::span<const std::byte> input) {
  using namespace millrace;
  std::vector<float> row;
  for (const GgufTensor& tensor : shard.tensors) {
    fuzz::check_within(tensor.bytes, input);
    fuzz::touch(tensor.bytes);
    const int64_t columns = tensor.shape.back();
    row.resize(static_cast<size_t>(columns));
    dequantize_row(tensor.format, tensor.bytes.data(), row.data(), columns);
  }
}

millrace::GgufTensorFacts facts_of(const millrace::GgufShard& shard) {
  millrace::GgufTensorFacts facts;
  for (const auto& tensor : shard.tensors) {
    if (tensor.name == "output.weight") facts.has_output = true;
    if (tensor.name.ends_with("indexer.attn_k.weight")) facts.has_indexer.push_back(1);
    if (tensor.name.ends_with("ffn_gate_inp.weight")) facts.has_router.push_back(0);
    if (tensor.name == "token_embd.weight") facts.embedding_rows = tensor.shape.front();
    if (tensor.name == "rope_freqs.weight" && tensor.format == millrace::WeightFormat::kF32) {
      facts.rope_freqs.resize(tensor.bytes.size() / 4);
      millrace::dequantize_row(tensor.format, tensor.bytes.data(), facts.rope_freqs.data(),
                               static_cast<int64_t>(facts.rope_freqs.size()));
    }
  }
  return facts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto input = std::as_bytes(std::span(data, size));
  const auto shard = parse_gguf(input);
  if (!shard) {
    fuzz::check_error(shard.error());
    return 0;
  }
  check_tensors(*shard, input);
  const auto config = parse_gguf_config(shard->metadata, facts_of(*shard));
  if (!config) fuzz::check_error(config.error());
  return 0;
}
