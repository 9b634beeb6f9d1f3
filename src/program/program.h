// A forward as a flat list of steps: recorded by models, then run in one parallel region.
//
// A step is a number of items and a function that computes some of them. The threads of the team
// claim items from the step's counter, and a step is over when all of its items are done: only then
// does a thread go on to the next one, so it sees all results of the steps before. Nobody waits for
// a thread that holds no items: where the system has taken a thread off its core, the others do its
// share and go on, and it catches up later.
//
// A program may be run any number of times; storage is kept by clear(), so that recording the next
// step of the engine allocates nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/buffer.h"
#include "base/thread_team.h"
#include "program/arena.h"

namespace millrace {

// What a step costs, for prices, bounds and traces. Bytes are of memory that the step must read or
// write at least once: weights, cache, activations.
struct StepCost {
  double multiply_adds = 0;
  double weight_bytes = 0;
  double cache_bytes = 0;
};

inline StepCost operator+(const StepCost& a, const StepCost& b) {
  return {a.multiply_adds + b.multiply_adds, a.weight_bytes + b.weight_bytes,
          a.cache_bytes + b.cache_bytes};
}

class Program {
 public:
  // How a step's items are shared out: `num_items` of them, claimed `run` at a time.
  struct Items {
    int64_t num_items = 0;
    int64_t run = 1;
  };

  // Computes items [begin, end) of a step. `scratch` is this thread's own, as large as the largest
  // that any step asked for.
  template <typename Args>
  using StepFunction = void (*)(const Args& args, int64_t begin, int64_t end, std::byte* scratch);

  // Args is a plain struct; it is copied.
  template <typename Args>
  void add(const char* label, const Items& items, StepFunction<Args> run, const Args& args,
           const StepCost& cost = {}) {
    static_assert(std::is_trivially_copyable_v<Args>, "step arguments are copied as bytes");
    Step step;
    step.label = label;
    step.items = items;
    step.run = reinterpret_cast<ErasedRun>(run);
    step.call = [](ErasedRun erased, const std::byte* raw, int64_t begin, int64_t end,
                   std::byte* scratch) {
      const auto typed = reinterpret_cast<StepFunction<Args>>(erased);
      typed(*reinterpret_cast<const Args*>(raw), begin, end, scratch);
    };
    step.args_offset = store(&args, sizeof(Args));
    step.cost = cost;
    steps_.push_back(step);
    total_cost_ = total_cost_ + cost;
  }

  // A step asks for `bytes` of scratch memory per thread.
  void need_scratch(int64_t bytes) { scratch_bytes_ = std::max(scratch_bytes_, bytes); }
  int64_t scratch_bytes() const { return scratch_bytes_; }

  // Runs all steps on the team. `scratch` has scratch_stride bytes for each thread.
  void run(ThreadTeam& team, std::byte* scratch, int64_t scratch_stride);

  // Forgets the steps and keeps the storage.
  void clear();

  int64_t num_steps() const { return static_cast<int64_t>(steps_.size()); }
  const StepCost& total_cost() const { return total_cost_; }

  // For traces and prices: label and cost of step i.
  const char* label(int64_t i) const { return steps_[static_cast<size_t>(i)].label; }
  const StepCost& cost(int64_t i) const { return steps_[static_cast<size_t>(i)].cost; }

  // Times each step of the next runs (as thread 0 sees it, its wait included) and adds the
  // seconds up by step. Costs two clock readings a step.
  void set_timing(bool on) { timing_ = on; }
  std::span<const double> step_seconds() const { return step_seconds_; }

 private:
  using ErasedRun = void (*)();
  struct Step {
    const char* label;
    ErasedRun run;
    void (*call)(ErasedRun, const std::byte*, int64_t, int64_t, std::byte*);
    Items items;
    size_t args_offset;
    StepCost cost;
  };
  // One step's counters to a cache line: threads hammer on them. Items fit 32 bits (checked), so
  // that a waiting thread can sleep on `done`.
  struct alignas(64) Counters {
    std::atomic<int32_t> next{0};
    std::atomic<int32_t> done{0};
  };

  void run_step(const Step& step, Counters& counters, std::byte* scratch) const;

  size_t store(const void* args, size_t size);

  std::vector<Step> steps_;
  std::vector<std::byte> args_;
  std::unique_ptr<Counters[]> counters_;
  size_t num_counters_ = 0;
  int64_t scratch_bytes_ = 0;
  StepCost total_cost_;
  bool timing_ = false;
  std::vector<double> step_seconds_;
};

}  // namespace millrace
