#include "program/program.h"

#include <chrono>
#include <cstring>

#include "base/check.h"

namespace millrace {
namespace {

constexpr size_t kArgsAlignment = 64;
constexpr int64_t kMostItems = int64_t{1} << 30;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

size_t Program::store(const void* args, size_t size) {
  const size_t offset = args_.size();
  args_.resize(offset + (size + kArgsAlignment - 1) / kArgsAlignment * kArgsAlignment);
  std::memcpy(args_.data() + offset, args, size);
  return offset;
}

void Program::clear() {
  steps_.clear();
  args_.clear();
  total_cost_ = {};
  scratch_bytes_ = 0;
  step_seconds_.clear();
}

void Program::run_step(const Step& step, Counters& counters, std::byte* scratch) const {
  const auto total = static_cast<int32_t>(step.items.num_items);
  const auto run = static_cast<int32_t>(step.items.run);
  const std::byte* args = args_.data() + step.args_offset;
  while (true) {
    // A counter that has passed the total is left alone, so that it cannot overflow.
    if (counters.next.load(std::memory_order_relaxed) >= total) return;
    const int32_t begin = counters.next.fetch_add(run, std::memory_order_relaxed);
    if (begin >= total) return;
    const int32_t end = std::min(begin + run, total);
    step.call(step.run, args, begin, end, scratch);
    if (counters.done.fetch_add(end - begin, std::memory_order_acq_rel) + end - begin == total) {
      counters.done.notify_all();
    }
  }
}

void Program::run(ThreadTeam& team, std::byte* scratch, int64_t scratch_stride) {
  MR_CHECK(scratch_stride >= scratch_bytes_, "{} bytes of scratch, {} needed", scratch_stride,
           scratch_bytes_);
  if (num_counters_ < steps_.size()) {
    counters_ = std::make_unique<Counters[]>(steps_.capacity());
    num_counters_ = steps_.capacity();
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    MR_CHECK(steps_[i].items.num_items <= kMostItems, "step {} has too many items",
             steps_[i].label);
    counters_[i].next.store(0, std::memory_order_relaxed);
    counters_[i].done.store(0, std::memory_order_relaxed);
  }
  if (timing_) step_seconds_.resize(steps_.size(), 0.0);

  team.run([&](int thread) {
    const bool timed = timing_ && thread == 0;
    double started = timed ? now_seconds() : 0.0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      Counters& counters = counters_[i];
      run_step(steps_[i], counters, scratch + thread * scratch_stride);
      const auto total = static_cast<int32_t>(steps_[i].items.num_items);
      team.wait_until_equal(counters.done, total);
      if (timed) {
        const double ended = now_seconds();
        step_seconds_[i] += ended - started;
        started = ended;
      }
    }
  });
}

}  // namespace millrace
