// The engine: requests in, tokens out, one step at a time.
//
// step() is one forward for all sequences that the scheduler chose; the caller loops. Between two
// steps requests may be added and aborted. What a request answers depends on its prompt, its
// parameters and its seed, and not on what else is in the batch, the limits or the pool
// (docs/numerics.md). Not thread-safe: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/sampling_params.h"
#include "engine/scheduler.h"
#include "engine/text_sink.h"
#include "kernels/isa.h"
#include "kvcache/block_pool.h"
#include "runtime/forward_runner.h"

namespace millrace {

struct EngineOptions {
  int64_t num_blocks = 0;  // of the runner's cache
  int64_t block_size = 16;
  int64_t max_model_len = 0;  // most tokens of a sequence, prompt and answer
  SchedulerLimits limits;
  std::vector<int32_t> eos_token_ids;  // all declared end tokens
  Isa isa = Isa::kPortable;            // of the sampling kernels
};

struct Request {
  std::vector<int32_t> prompt_token_ids;
  SamplingParams params;
  TextSinkFactory make_text;  // called once per sample; empty: outputs have no text
};

using RequestId = uint64_t;

enum class FinishReason : uint8_t { kStop, kLength, kAbort };

// "stop", "length", "abort".
std::string_view name_of(FinishReason reason);

// What a step added to one sample.
struct SequenceOutput {
  RequestId request_id = 0;
  int sample_index = 0;
  std::vector<int32_t> token_ids;       // new tokens, an end token included
  std::vector<TokenLogprobs> logprobs;  // of the new tokens, if asked for
  std::string text;                     // new text; no part of an end token or stop string
  std::optional<FinishReason> finish_reason;
};

struct StepOutput {
  std::vector<SequenceOutput> outputs;
  int64_t num_prefill_tokens = 0;  // computed in this step for prompts (or anew)
  int64_t num_decode_tokens = 0;
  int64_t num_preempted = 0;
};

// The length at which a sequence ends: prompt plus max_tokens, cut to the context. Without
// max_tokens it is cut to the pool as well; with it, an answer that the pool cannot hold is an
// error. (The last token is not cached and needs no room.)
Result<int64_t> resolve_max_length(int64_t num_prompt_tokens, std::optional<int64_t> max_tokens,
                                   const EngineOptions& options);

class Engine {
 public:
  // The runner must outlive the engine, and have the cache that `options` describes.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options,
                                                ForwardRunner& runner);

  // Queues a request. Errors: bad parameters, an empty prompt, a token outside of the vocabulary, a
  // prompt longer than the context, a request that the pool can never hold.
  Result<RequestId> add_request(Request request);

  // Ends all samples of a request; the next step reports them as aborted and their blocks are free
  // at once. Unknown or finished requests are ignored.
  void abort(RequestId request_id);

  // Runs one step. An error comes from the runner; nothing has advanced, so the caller may abort
  // requests or try again.
  Result<StepOutput> step();

  // True while step() has something to do or to report.
  bool has_work() const { return !sequences_.empty() || !pending_.empty(); }

  int64_t num_free_blocks() const { return pool_.num_free(); }
  size_t num_running() const { return scheduler_.num_running(); }
  size_t num_waiting() const { return scheduler_.num_waiting(); }
  const EngineOptions& options() const { return options_; }

 private:
  Engine(const EngineOptions& options, ForwardRunner& runner);

  void add_sample(RequestId id, int sample_index, const Request& request, uint64_t seed,
                  int64_t max_length);
  SequenceOutput advance(Sequence& sequence, std::span<const float> logits);
  void erase(Sequence* sequence);

  EngineOptions options_;
  ForwardRunner& runner_;
  BlockPool pool_;  // outlives the sequences below
  Scheduler scheduler_;
  SamplerScratch scratch_;
  std::map<uint64_t, std::unique_ptr<Sequence>> sequences_;  // by arrival
  std::vector<SequenceOutput> pending_;                      // aborted since the last step
  RequestId next_request_ = 1;
  uint64_t next_arrival_ = 0;
};

}  // namespace millrace
