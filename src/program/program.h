// A forward as a flat list of steps: recorded by models, then run in one parallel region.
//
// Recording a step copies its arguments into the program; running it calls the step's function once
// on every thread of the team, and the threads share the work by claiming items from the step's
// counter. A step ends with a barrier, so the next one sees all of its results, unless it was
// recorded as `kNone` because the next step does not read what it writes.
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

// A thread's view of the step that it runs.
class StepContext {
 public:
  StepContext(int thread, int num_threads, std::byte* scratch, std::atomic<int64_t>& next)
      : thread_(thread), num_threads_(num_threads), scratch_(scratch), next_(next) {}

  int thread() const { return thread_; }
  int num_threads() const { return num_threads_; }
  // This thread's scratch memory, as large as the largest that any step asked for.
  std::byte* scratch() const { return scratch_; }

  // Shares [0, num_items) among the threads in runs of at most `run` items: body(begin, end) is
  // called for the runs that this thread gets. To be called once per step by every thread.
  template <typename Body>
  void share(int64_t num_items, int64_t run, Body&& body) {
    if (num_threads_ == 1) {
      if (num_items > 0) body(int64_t{0}, num_items);
      return;
    }
    while (true) {
      const int64_t begin = next_.fetch_add(run, std::memory_order_relaxed);
      if (begin >= num_items) return;
      body(begin, std::min(begin + run, num_items));
    }
  }

 private:
  int thread_;
  int num_threads_;
  std::byte* scratch_;
  std::atomic<int64_t>& next_;
};

enum class StepEnd : uint8_t { kBarrier, kNone };

class Program {
 public:
  // Args is a plain struct (trivially destructible); `run(args, context)` is called on each thread.
  template <typename Args>
  void add(const char* label, void (*run)(const Args&, StepContext&), const Args& args,
           const StepCost& cost = {}, StepEnd end = StepEnd::kBarrier) {
    static_assert(std::is_trivially_copyable_v<Args>, "step arguments are copied as bytes");
    Step step;
    step.label = label;
    step.run = reinterpret_cast<ErasedRun>(reinterpret_cast<void*>(run));
    step.call = [](ErasedRun erased, const std::byte* raw, StepContext& context) {
      const auto typed =
          reinterpret_cast<void (*)(const Args&, StepContext&)>(reinterpret_cast<void*>(erased));
      typed(*reinterpret_cast<const Args*>(raw), context);
    };
    step.args_offset = store(&args, sizeof(Args));
    step.cost = cost;
    step.end = end;
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

  // Times each step of the next runs (as thread 0 sees it, its barrier included) and adds the
  // seconds up by step. Costs two clock readings a step.
  void set_timing(bool on) { timing_ = on; }
  std::span<const double> step_seconds() const { return step_seconds_; }

 private:
  using ErasedRun = void (*)();
  struct Step {
    const char* label;
    ErasedRun run;
    void (*call)(ErasedRun, const std::byte*, StepContext&);
    size_t args_offset;
    StepCost cost;
    StepEnd end;
  };
  // One counter to a cache line: threads hammer on it.
  struct alignas(64) Counter {
    std::atomic<int64_t> next{0};
  };

  size_t store(const void* args, size_t size);

  std::vector<Step> steps_;
  std::vector<std::byte> args_;
  std::unique_ptr<Counter[]> counters_;
  size_t num_counters_ = 0;
  int64_t scratch_bytes_ = 0;
  StepCost total_cost_;
  bool timing_ = false;
  std::vector<double> step_seconds_;
};

}  // namespace millrace
