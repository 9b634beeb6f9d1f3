// Which tokens are computed in the next step: first come, first served, under a token budget.
//
// Each step, in this order, while the budget lasts:
//   1. running sequences that need one token (decodes), oldest first;
//   2. running sequences whose prompt is not finished, oldest first, in chunks;
//   3. waiting sequences, in order of arrival and never past one that has to wait. A sequence is
//      admitted when the pool has blocks for all of its tokens, and takes them at once.
// A decode that finds no free block takes those of the newest running sequence, which goes back to
// the front of the queue and is computed anew later (preemption by recomputation). The oldest
// sequence can thus always go on, and everything ends.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/sequence.h"

namespace millrace {

struct SchedulerLimits {
  int64_t max_num_batched_tokens = 512;  // tokens of a step
  int64_t max_num_seqs = 16;             // sequences that run at a time
  int64_t max_chunk = 0;                 // tokens of one sequence in a step; 0: the budget alone
};

struct Schedule {
  std::vector<Sequence*> sequences;  // with num_scheduled > 0, in order of arrival
  int64_t num_preempted = 0;
};

// Sequences are owned by the caller and must stay where they are until removed.
class Scheduler {
 public:
  // The limits are at least 1 (checked), the chunk at least 0.
  explicit Scheduler(const SchedulerLimits& limits);

  // Queues a new sequence, whose arrival is later than that of all before.
  void add(Sequence* sequence);

  // Takes a sequence out, wherever it is, and frees its blocks.
  void remove(Sequence* sequence);

  // Chooses the tokens of the next step and gives them blocks; sets num_scheduled of every
  // sequence. Empty only if there are no sequences.
  Schedule schedule();

  size_t num_running() const { return running_.size(); }
  size_t num_waiting() const { return waiting_.size(); }

 private:
  void schedule_decodes(Schedule& schedule);
  void schedule_prefills();
  void admit();
  bool make_room(Sequence* sequence, Schedule& schedule);
  void preempt_newest(Schedule& schedule);
  void give(Sequence* sequence);

  SchedulerLimits limits_;
  int64_t budget_ = 0;              // what is left of the step's tokens
  std::vector<Sequence*> running_;  // by arrival
  std::deque<Sequence*> waiting_;   // by arrival; all later than those running
};

}  // namespace millrace
