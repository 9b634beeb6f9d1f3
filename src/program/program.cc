#include "program/program.h"

#include <chrono>
#include <cstring>

#include "base/check.h"

namespace millrace {
namespace {

constexpr size_t kArgsAlignment = 64;

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

void Program::run(ThreadTeam& team, std::byte* scratch, int64_t scratch_stride) {
  MR_CHECK(scratch_stride >= scratch_bytes_, "{} bytes of scratch, {} needed", scratch_stride,
           scratch_bytes_);
  if (num_counters_ < steps_.size()) {
    counters_ = std::make_unique<Counter[]>(steps_.capacity());
    num_counters_ = steps_.capacity();
  }
  for (size_t i = 0; i < steps_.size(); ++i) counters_[i].next.store(0, std::memory_order_relaxed);
  if (timing_) step_seconds_.resize(steps_.size(), 0.0);

  team.run([&](int thread) {
    const bool timed = timing_ && thread == 0;
    double started = timed ? now_seconds() : 0.0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      StepContext context(thread, team.size(), scratch + thread * scratch_stride,
                          counters_[i].next);
      step.call(step.run, args_.data() + step.args_offset, context);
      if (step.end == StepEnd::kBarrier) team.barrier();
      if (timed) {
        const double ended = now_seconds();
        step_seconds_[i] += ended - started;
        started = ended;
      }
    }
  });
}

}  // namespace millrace
