#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits) {
  MR_CHECK(limits.max_num_batched_tokens >= 1 && limits.max_num_seqs >= 1 && limits.max_chunk >= 0);
}

void Scheduler::add(Sequence* sequence) {
  MR_CHECK(waiting_.empty() || waiting_.back()->arrival < sequence->arrival);
  waiting_.push_back(sequence);
}

void Scheduler::remove(Sequence* sequence) {
  std::erase(running_, sequence);
  std::erase(waiting_, sequence);
  sequence->blocks.clear();
  sequence->num_computed = 0;
}

Schedule Scheduler::schedule() {
  Schedule schedule;
  budget_ = limits_.max_num_batched_tokens;
  for (Sequence* sequence : running_) sequence->num_scheduled = 0;
  schedule_decodes(schedule);
  schedule_prefills();
  // What was just preempted would come straight back.
  if (schedule.num_preempted == 0) admit();
  for (Sequence* sequence : running_) {
    if (sequence->num_scheduled > 0) schedule.sequences.push_back(sequence);
  }
  return schedule;
}

void Scheduler::schedule_decodes(Schedule& schedule) {
  // Preemption takes sequences off the end of the list while it is walked.
  for (size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    Sequence* sequence = running_[i];
    if (sequence->num_remaining() == 1 && make_room(sequence, schedule)) give(sequence);
  }
}

void Scheduler::schedule_prefills() {
  for (Sequence* sequence : running_) {
    if (budget_ == 0) return;
    if (sequence->num_scheduled == 0 && sequence->num_remaining() > 1) give(sequence);
  }
}

void Scheduler::admit() {
  while (!waiting_.empty() && budget_ > 0 &&
         static_cast<int64_t>(running_.size()) < limits_.max_num_seqs) {
    Sequence* sequence = waiting_.front();
    if (!sequence->blocks.grow_to(sequence->length())) {
      MR_CHECK(!running_.empty(), "a sequence of {} tokens does not fit the empty pool",
               sequence->length());
      return;
    }
    waiting_.pop_front();
    running_.push_back(sequence);
    give(sequence);
  }
}

// Gives a decode room for its token; false if the sequence itself had to go.
bool Scheduler::make_room(Sequence* sequence, Schedule& schedule) {
  while (!sequence->blocks.grow_to(sequence->length())) {
    const bool itself = running_.back() == sequence;
    MR_CHECK(!itself || running_.size() > 1, "a sequence of {} tokens does not fit the pool",
             sequence->length());
    preempt_newest(schedule);
    if (itself) return false;
  }
  return true;
}

void Scheduler::preempt_newest(Schedule& schedule) {
  Sequence* victim = running_.back();
  running_.pop_back();
  // It has no share of this step yet: decodes are served oldest first, before everything else.
  MR_CHECK(victim->num_scheduled == 0);
  victim->num_computed = 0;
  victim->blocks.clear();
  waiting_.push_front(victim);
  ++schedule.num_preempted;
}

void Scheduler::give(Sequence* sequence) {
  int64_t chunk = std::min(sequence->num_remaining(), budget_);
  if (limits_.max_chunk > 0) chunk = std::min(chunk, limits_.max_chunk);
  sequence->num_scheduled = chunk;
  budget_ -= chunk;
}

}  // namespace millrace
