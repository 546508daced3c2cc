#pragma once
// Runs a block plan. Counters in the staging buffers publish each rank's progress; a rank makes a
// step as soon as its peers' counters allow it.
#include <cstdint>

#include "collectives/same_host/block_plan.h"

namespace hccl_like {

// One call at a time, reusable. One thread at a time.
class BlockPipeline {
 public:
  using Counter = StagingBuffer::Counter;

  // `plan` is borrowed. All counter values of the call are larger than `base` (StagingBuffer).
  void begin(const BlockPlan& plan, uint64_t base);
  // Before the plan is settled: stages the first blocks, which are needed whatever peers offer.
  void stage_first_blocks();
  // Collectives that only copy: copies this rank's own data of the first block.
  void copy_own_first();

  // Makes the next possible step, of at most some hundred KiB; false if there is none.
  bool advance();
  bool could_advance() const { return next() != Step::kNone; }
  bool finished() const { return finished_ == plan_->shape.blocks; }
  // A rank withdrew memory that this rank was to write.
  bool lost() const { return lost_; }
  // Wakes ranks that sleep until this rank's present progress. Costs as much as a step of some KiB,
  // so call it only before a wait of more than some polls.
  void tell();

  // Number of blocks that another rank has published.
  uint64_t told(int rank, Counter StagingBuffer::*counter) const;
  bool all_told(Counter StagingBuffer::*counter, uint64_t blocks) const;

 private:
  enum class Step : uint8_t { kNone, kCopyOwn, kStage, kWork, kFetch };

  Step next() const;
  void count(Counter& counter, uint64_t blocks);
  bool finish_is_awaited() const;
  bool slot_is_free(uint32_t block) const;
  bool inputs_are_there(uint32_t block) const;
  bool work();
  bool begin_writing();
  void copy_own(Span block);
  void finish_block();

  const BlockPlan* plan_ = nullptr;
  uint64_t base_ = 0;
  uint32_t staged_ = 0, worked_ = 0, finished_ = 0;  // blocks
  size_t copied_ = 0;    // payload bytes of which this rank's own part is in place
  bool untold_ = false;  // another rank may sleep until it learns of the progress
  bool lost_ = false;
};

}  // namespace hccl_like
