#pragma once
// One large call between ranks of one host, without messages: each rank reduces or copies straight
// out of what the others show, and writes straight into it where it may.
//
// Memory that peers can map (Call::shared_input, shared_regions, shared_output) is read and written
// in place. All other bytes go through the staging buffers of the ranks block by block, so that a
// block is still in a cache when it is reduced. Either way a call takes two meetings of the ranks,
// plus one if memory is shared, and all wait until nobody uses theirs any more; one meeting where
// every rank makes all of its own result.
//
//     begin    measures the call and takes a staging buffer          (block_plan.h)
//     show     offers this rank's memory on the board                (memory_agreement.h)
//     meet     reads what the others offer, and maps it
//     advance  runs the blocks                                       (block_pipeline.h,
//     block_moves.h) end      gives the staging buffer back
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/board/board_call.h"
#include "collectives/same_host/block_pipeline.h"
#include "collectives/same_host/block_plan.h"
#include "collectives/same_host/memory_agreement.h"

namespace hccl_like {

// Whether a call can go this way, if it is not one for the board. The same on all ranks.
bool is_large_call(const Call& call, int ranks);

// Used by one thread at a time, and reused.
class LargeCall {
 public:
  LargeCall() = default;
  LargeCall(const LargeCall&) = delete;
  LargeCall& operator=(const LargeCall&) = delete;

  // Takes a staging buffer for the call, which is borrowed until end(); false if none is free now:
  // show_no_staging() then.
  bool begin(const BoardCall& call);
  // Shows the call, and that this rank has no staging buffer for it: no rank runs it then, all make
  // it by messages.
  static void show_no_staging(const BoardCall& call);
  // Shows the call and what this rank offers, as Board::show() does. The line must be writable.
  void show();
  // All lines are there.
  void meet();
  bool met() const { return stage_ != Stage::kOff && stage_ != Stage::kShown; }
  // After meet(): a rank has no staging buffer for the call. Nothing is moved then, and this one's
  // is given back.
  bool lacks_staging() const { return lacks_staging_; }
  // After meet(): a rank gives this one another number of bytes than expected, or expects another.
  // Nothing is moved then.
  const std::optional<BoardMismatch>& mismatch() const { return mismatch_; }
  // The call cannot be finished.
  const std::optional<Error>& failure() const { return memory_.failure(); }
  // The same call, kept elsewhere from now on.
  void go_on(const BoardCall& call) { plan_.call = &call; }

  // Makes the steps that can be made now; true if any was.
  bool advance();
  // See BlockPipeline::tell().
  void tell() { pipeline_.tell(); }
  bool could_advance() const;
  bool finished() const { return stage_ == Stage::kFinished; }
  // Ranks that it waits for, after meet().
  std::vector<int> waiting_for() const;
  // The call is over or has failed. If it failed and another rank writes into this rank's memory,
  // it waits for that rank. A rank that was stopped meanwhile is waited for a second; then the
  // memory is kept until that rank goes on or dies (transport/message/kept_memory.h).
  void end();

 private:
  enum class Stage : uint8_t { kOff, kShown, kAccepting, kMoving, kDraining, kFinished };
  // Where another rank tells that it writes for this call.
  struct Writer {
    const StagingBuffer::Counter* word = nullptr;  // null: it cannot be writing
    uint64_t writing = 0;                          // the word's value while it writes
    bool writes() const {
      return word != nullptr && word->load(std::memory_order_acquire) == writing;
    }
  };

  bool all_have_staging() const;
  void read_offers();
  void compare(int rank, const ChunkSizes& told);
  void accept(uint64_t accepted);
  bool all_accepted() const;
  void agree();
  bool may_finish() const;
  void give_staging_up();
  Writer writer(int rank) const;
  void wait_for_writers() const;

  Stage stage_ = Stage::kOff;
  BlockPlan plan_;
  MemoryAgreement memory_;
  BlockPipeline pipeline_;
  uint32_t staging_number_ = 0;
  uint64_t base_ = 0;
  bool sums_all_ = false;  // what this rank wanted, and then what all do
  bool lacks_staging_ = false;
  bool lost_ = false;
  std::optional<BoardMismatch> mismatch_;
};

}  // namespace hccl_like
