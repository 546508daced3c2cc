#include "collectives/same_host/block_pipeline.h"

#include <algorithm>
#include <utility>

#include "collectives/same_host/block_moves.h"
#include "core/machine/fence.h"

namespace hccl_like {

void BlockPipeline::begin(const BlockPlan& plan, uint64_t base) {
  *this = {};
  plan_ = &plan;
  base_ = base;
}

void BlockPipeline::stage_first_blocks() {
  // Only as many blocks as readers can begin with.
  const uint32_t first = plan_->roles.reducing() ? StagingBuffer::kSlots : 1;
  while (staged_ < std::min(plan_->shape.blocks, first)) stage_block(*plan_, staged_++);
  plan_->staging->put.store(base_ + staged_, std::memory_order_relaxed);
}

void BlockPipeline::copy_own_first() {
  if (!plan_->roles.reducing()) copy_own(plan_->shape.block(0));
}

BlockPipeline::Step BlockPipeline::next() const {
  const Roles& roles = plan_->roles;
  if (lost_) return Step::kNone;
  // First: copying while another rank reads the same part takes a quarter longer.
  if (!roles.staged() && !roles.reducing() && copied_ < plan_->shape.payload) return Step::kCopyOwn;
  // Steps that free a slot come first, steps that fill one last.
  if (finished_ < worked_ && all_told(&StagingBuffer::worked, finished_ + 1)) return Step::kFetch;
  if (worked_ < plan_->shape.blocks && (worked_ < staged_ || !roles.puts()) &&
      inputs_are_there(worked_) && (!roles.keeps_results() || slot_is_free(worked_)))
    return Step::kWork;
  if (roles.puts() && staged_ < plan_->shape.blocks && slot_is_free(staged_)) return Step::kStage;
  return Step::kNone;
}

bool BlockPipeline::advance() {
  constexpr size_t kOwnStep = 256 << 10;
  switch (next()) {
    case Step::kNone:
      return false;
    case Step::kCopyOwn:
      copy_own({copied_, std::min(copied_ + kOwnStep, plan_->shape.payload)});
      return true;
    case Step::kStage:
      stage_block(*plan_, staged_);
      count(plan_->staging->put, ++staged_);
      untold_ = true;
      return true;
    case Step::kWork:
      return work();
    case Step::kFetch:
      fetch_block(*plan_, finished_);
      finish_block();
      return true;
  }
  return false;
}

bool BlockPipeline::work() {
  const Roles& roles = plan_->roles;
  if (roles.pushes() && !begin_writing()) return false;
  if (roles.reducing()) {
    reduce_block(*plan_, worked_);
  } else {
    copy_own(plan_->shape.block(worked_));
    copy_block(*plan_, worked_);
  }
  if (roles.pushes()) plan_->staging->writing.store(0, std::memory_order_release);
  count(plan_->staging->worked, ++worked_);
  untold_ |= roles.reducing();
  if (!roles.fetches(plan_->rank)) finish_block();
  return true;
}

void BlockPipeline::finish_block() {
  count(plan_->staging->finished, ++finished_);
  untold_ |= finish_is_awaited();
}

// Pairs with LargeCall::end(): a failed rank withdraws its slot, then checks for writers. Both
// sides store, fence, then load, so at least one sees the other's store.
bool BlockPipeline::begin_writing() {
  const Board& board = *plan_->call->board;
  plan_->staging->writing.store(base_ + 1, std::memory_order_relaxed);
  full_fence();
  for (int rank = 0; rank < plan_->ranks; ++rank)
    if (rank != plan_->rank && plan_->roles.output_mapped(rank) &&
        !board.still_shows(rank, plan_->call->number))
      lost_ = true;
  if (lost_) plan_->staging->writing.store(0, std::memory_order_release);
  return !lost_;
}

void BlockPipeline::copy_own(Span block) {
  block.begin = std::max(block.begin, copied_);
  if (block.begin >= block.end) return;
  copied_ = block.end;
  hccl_like::copy_own(*plan_, block);
}

void BlockPipeline::count(Counter& counter, uint64_t blocks) {
  counter.store(base_ + blocks, std::memory_order_release);
}

void BlockPipeline::tell() {
  if (std::exchange(untold_, false)) plan_->call->board->ring();
}

// Whether a peer may sleep until this rank has finished its present number of blocks.
bool BlockPipeline::finish_is_awaited() const {
  return finished() ? plan_->roles.lends()
                    : finished_ + StagingBuffer::kSlots <= plan_->shape.blocks;
}

uint64_t BlockPipeline::told(int rank, Counter StagingBuffer::*counter) const {
  const BlockPlan::Peer& peer = plan_->peer(rank);
  const uint64_t count = (peer.staging->*counter).load(std::memory_order_acquire);
  return count > peer.base ? count - peer.base : 0;
}

bool BlockPipeline::all_told(Counter StagingBuffer::*counter, uint64_t blocks) const {
  for (int rank = 0; rank < plan_->ranks; ++rank)
    if (rank != plan_->rank && told(rank, counter) < blocks) return false;
  return true;
}

bool BlockPipeline::slot_is_free(uint32_t block) const {
  return block < StagingBuffer::kSlots ||
         all_told(&StagingBuffer::finished, block - StagingBuffer::kSlots + 1);
}

bool BlockPipeline::inputs_are_there(uint32_t block) const {
  for (int rank = 0; rank < plan_->ranks; ++rank)
    if (plan_->roles.reads_staging_of(rank) && told(rank, &StagingBuffer::put) <= block)
      return false;
  return true;
}

}  // namespace hccl_like
