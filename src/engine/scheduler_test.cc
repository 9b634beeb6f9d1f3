#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <memory>

namespace millrace {
namespace {

// Sequences of given lengths on a pool, and the effect of a step on them.
class SchedulerTest : public testing::Test {
 protected:
  void make(int64_t num_blocks, int64_t block_size, const SchedulerLimits& limits) {
    pool_ = std::make_unique<BlockPool>(num_blocks, block_size);
    scheduler_ = std::make_unique<Scheduler>(limits);
  }

  Sequence* add(int64_t num_prompt_tokens) {
    auto sequence = std::make_unique<Sequence>(*pool_, SequenceSampler(SamplerSettings{}, {}));
    sequence->arrival = sequences_.size();
    sequence->token_ids.assign(static_cast<size_t>(num_prompt_tokens), 1);
    sequence->num_prompt_tokens = num_prompt_tokens;
    scheduler_->add(sequence.get());
    sequences_.push_back(std::move(sequence));
    return sequences_.back().get();
  }

  // One step: tokens by arrival, 0 for those left out. Sequences that are complete get a token.
  std::vector<int64_t> step() {
    last_ = scheduler_->schedule();
    std::vector<int64_t> tokens(sequences_.size(), 0);
    for (Sequence* sequence : last_.sequences) {
      tokens[sequence->arrival] = sequence->num_scheduled;
      sequence->num_computed += sequence->num_scheduled;
      if (sequence->num_remaining() == 0) sequence->token_ids.push_back(1);
    }
    return tokens;
  }

  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  Schedule last_;
};

using Tokens = std::vector<int64_t>;

TEST_F(SchedulerTest, DecodesComeFirstAndPromptsShareWhatIsLeft) {
  make(100, 4, {10, 8, 0});
  add(4);
  add(3);
  EXPECT_EQ(step(), (Tokens{4, 3}));
  add(20);
  add(5);
  EXPECT_EQ(step(), (Tokens{1, 1, 8, 0}));
  EXPECT_EQ(step(), (Tokens{1, 1, 8, 0}));
  EXPECT_EQ(step(), (Tokens{1, 1, 4, 4}));
  EXPECT_EQ(step(), (Tokens{1, 1, 1, 1}));
}

TEST_F(SchedulerTest, ChunkLimitLetsPromptsRunSideBySide) {
  make(100, 4, {10, 8, 3});
  add(7);
  add(5);
  EXPECT_EQ(step(), (Tokens{3, 3}));
  EXPECT_EQ(step(), (Tokens{3, 2}));
  EXPECT_EQ(step(), (Tokens{1, 1}));
}

TEST_F(SchedulerTest, MaxNumSeqsBoundsWhatRuns) {
  make(100, 4, {10, 2, 0});
  add(2);
  add(2);
  Sequence* third = add(2);
  EXPECT_EQ(step(), (Tokens{2, 2, 0}));
  scheduler_->remove(sequences_[0].get());
  EXPECT_EQ(step(), (Tokens{0, 1, 2}));
  EXPECT_EQ(third->num_remaining(), 1);
}

TEST_F(SchedulerTest, NobodyOvertakesOneThatWaitsForBlocks) {
  make(6, 4, {64, 8, 0});
  add(12);
  add(16);  // needs four blocks, three are free
  add(1);
  EXPECT_EQ(step(), (Tokens{12, 0, 0}));
  EXPECT_EQ(scheduler_->num_waiting(), 2u);
  scheduler_->remove(sequences_[0].get());
  EXPECT_EQ(step(), (Tokens{0, 16, 1}));
}

TEST_F(SchedulerTest, TheNewestIsPreemptedAndComesBackFirst) {
  make(4, 4, {64, 8, 0});
  Sequence* first = add(8);
  Sequence* second = add(8);
  Sequence* third = add(1);
  EXPECT_EQ(step(), (Tokens{8, 8, 0}));
  EXPECT_EQ(step(), (Tokens{1, 0, 0})) << "the first takes a block of the second";
  EXPECT_EQ(last_.num_preempted, 1);
  EXPECT_EQ(second->num_computed, 0);
  EXPECT_EQ(second->length(), 9) << "its answer so far is kept";
  EXPECT_EQ(second->blocks.blocks().size(), 0u);
  EXPECT_EQ(step(), (Tokens{1, 0, 0})) << "one block is free, nine tokens need three";
  scheduler_->remove(first);
  EXPECT_EQ(step(), (Tokens{0, 9, 1}));
  EXPECT_EQ(third->num_remaining(), 1);
}

TEST_F(SchedulerTest, ADecodeWithoutRoomPreemptsItselfIfItIsTheNewest) {
  make(3, 4, {64, 8, 0});
  add(4);
  Sequence* second = add(8);
  EXPECT_EQ(step(), (Tokens{4, 8}));
  EXPECT_EQ(step(), (Tokens{1, 0}));
  EXPECT_EQ(last_.num_preempted, 1);
  EXPECT_EQ(second->num_computed, 0);
}

TEST_F(SchedulerTest, RemoveFreesWhereverTheSequenceIs) {
  make(8, 4, {4, 8, 0});
  Sequence* running = add(10);
  Sequence* waiting = add(10);
  EXPECT_EQ(step(), (Tokens{4, 0}));
  scheduler_->remove(waiting);
  scheduler_->remove(running);
  EXPECT_EQ(pool_->num_free(), 8);
  EXPECT_TRUE(scheduler_->schedule().sequences.empty());
}

}  // namespace
}  // namespace millrace
