#pragma once
// Runs a plan block by block: counters in the staging buffers say how far each rank is, and every
// step is made as soon as the others have made those that it needs.
#include <cstdint>

#include "collectives/same_host/block_plan.h"

namespace hccl_like {

// Of one call, and reused. Used by one thread at a time.
class BlockPipeline {
 public:
  using Counter = StagingBuffer::Counter;

  // `plan` is borrowed. The call's counters are larger than `base` (StagingBuffer).
  void begin(const BlockPlan& plan, uint64_t base);
  // Before the plan is settled: stages the blocks that the others can begin with, whatever they
  // offer.
  void stage_first_blocks();
  // Of collectives that only copy: what needs nobody, of the first block.
  void copy_own_first();

  // Makes the step that can be made now, one of some hundred KiB at most; false if there is none.
  bool advance();
  bool could_advance() const { return next() != Step::kNone; }
  // All of this rank's part is done.
  bool finished() const { return finished_ == plan_->shape.blocks; }
  // A rank took back memory that this one was to write into.
  bool lost() const { return lost_; }
  // Wakes ranks that sleep until this one has come as far as it has now. Not part of every step, as
  // it takes as long as one of some KiB: to be called when this rank is to wait for longer than
  // some polls.
  void tell();

  // How many blocks another rank has told.
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
  size_t copied_ = 0;    // bytes of the payload of which this rank's own part is in place
  bool untold_ = false;  // another rank may sleep for what was done
  bool lost_ = false;
};

}  // namespace hccl_like
