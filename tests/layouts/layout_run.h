// Runs of tiny models whose bytes are compared.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/env.h"
#include "golden_case.h"
#include "kernels/isa.h"

namespace millrace {

// All logits and continuations, one after the other.
inline std::string bytes_of(const std::vector<PromptResult>& results) {
  std::string bytes;
  for (const PromptResult& result : results) {
    bytes.append(reinterpret_cast<const char*>(result.logits.data()), result.logits.size() * 4);
    bytes.append(reinterpret_cast<const char*>(result.greedy.data()), result.greedy.size() * 4);
  }
  return bytes;
}

// The first `length` tokens of a case's longest prompt, for each of `lengths`.
inline std::vector<std::vector<int32_t>> prompts_of_lengths(const GoldenCase& golden,
                                                            const std::vector<size_t>& lengths) {
  const std::vector<int32_t>& longest = golden.prompts.back().ids;
  std::vector<std::vector<int32_t>> prompts;
  for (const size_t length : lengths) {
    EXPECT_LE(length, longest.size());
    if (length > longest.size()) continue;
    prompts.emplace_back(longest.begin(), longest.begin() + static_cast<ptrdiff_t>(length));
  }
  return prompts;
}

// Whether models can be loaded in a numeric class here: bf16 needs the CPU's bf16 dot products and
// no lesser kernels forced upon this process.
inline bool has_numeric_class(NumericClass numeric_class) {
  if (numeric_class == NumericClass::kF32) return true;
  const CpuFeatures features = detect_cpu_features();
  const auto isa = resolve_isa(env::isa(), features);
  return isa && has_bf16_class(*isa, features);
}

// What is computed: a model and the types that change its arithmetic.
struct Arithmetic {
  std::string name;
  std::string model;
  DType dtype = DType::kF32;
  DType kv_cache_dtype = DType::kF32;
  ActivationQuantization quantization = ActivationQuantization::kNone;
  NumericClass numeric_class = NumericClass::kF32;
  DType indexer_dtype = DType::kI8;

  void set(EngineConfig& engine) const {
    engine.dtype = dtype;
    engine.kv_cache_dtype = kv_cache_dtype;
    engine.activation_quantization = quantization;
    engine.numeric_class = numeric_class;
    engine.indexer_dtype = indexer_dtype;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Arithmetic& a) { return out << a.name; }

// How a computation is laid out.
struct RunLayout {
  std::string name;
  int threads = 2;
  int64_t chunk = 0;
  bool one_by_one = false;
  int block_size = 16;
};

// Empty if the run failed, which is a failure of the test.
inline std::string run_bytes(const std::string& model, EngineConfig engine,
                             const std::vector<std::vector<int32_t>>& prompts, int64_t num_greedy,
                             const RunLayout& layout) {
  engine.threads = layout.threads;
  engine.block_size = layout.block_size;
  engine.num_blocks = blocks_for_prompts(prompts, num_greedy, layout.block_size);
  const auto results = run_prompts(
      model, engine, prompts,
      {.num_greedy = num_greedy, .chunk = layout.chunk, .one_by_one = layout.one_by_one});
  EXPECT_TRUE(results) << layout.name << ": " << results.error().message;
  return results ? bytes_of(*results) : "";
}

}  // namespace millrace
