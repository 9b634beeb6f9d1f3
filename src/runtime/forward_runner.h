// The link from the engine down to a model: runs one step, gives logits.
#pragma once

#include "base/error.h"
#include "runtime/forward_input.h"

namespace millrace {

// Implemented by ModelRunner (model_runner.h); tests of the engine give their own.
class ForwardRunner {
 public:
  virtual ~ForwardRunner() = default;

  // Computes one step and writes K and V of its tokens into the cache. The logits are valid until
  // the next call. Errors are the caller's to report per step; the cache is then as before the step
  // for all positions below num_computed of each sequence.
  virtual Result<StepLogits> forward(const StepInput& input) = 0;

  virtual int64_t vocab_size() const = 0;
};

}  // namespace millrace
