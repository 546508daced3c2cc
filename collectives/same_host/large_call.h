#pragma once
// One large call between ranks of one host, without messages: each rank reduces or copies directly
// from its peers' memory and, where permitted, writes directly into it.
//
// Memory that peers can map (Call::shared_input, shared_regions, shared_output) is accessed in
// place. All other bytes pass through the staging buffers in blocks, which are still cached when
// they are reduced. A call takes two synchronizations of all ranks; one more if memory is shared,
// to wait until no peer accesses it; only one if every rank computes all of its own result.
//
//     begin    measures the call and takes a staging buffer  (block_plan.h)
//     show     offers this rank's memory on the board        (memory_agreement.h)
//     meet     reads the peers' offers and maps their memory
//     advance  runs the blocks                               (block_pipeline.h, block_moves.h)
//     end      returns the staging buffer
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/board/board_call.h"
#include "collectives/same_host/block_pipeline.h"
#include "collectives/same_host/block_plan.h"
#include "collectives/same_host/memory_agreement.h"

namespace hccl_like {

// Whether a call that is not for the board can take this path. Same result on all ranks.
bool is_large_call(const Call& call, int ranks);

// One thread at a time; reusable.
class LargeCall {
 public:
  LargeCall() = default;
  LargeCall(const LargeCall&) = delete;
  LargeCall& operator=(const LargeCall&) = delete;

  // False if no staging buffer is free: then use show_no_staging(). Borrows `call` until end().
  bool begin(const BoardCall& call);
  // Publishes the call without a staging buffer; all ranks then make it by messages.
  static void show_no_staging(const BoardCall& call);
  // Publishes the call and this rank's offer, as Board::show() does. The slot must be writable.
  void show();
  // All ranks' slots must be published.
  void meet();
  bool met() const { return stage_ != Stage::kOff && stage_ != Stage::kShown; }
  // After meet(): a rank has no staging buffer. No data was moved; this rank's buffer was returned.
  bool lacks_staging() const { return lacks_staging_; }
  // After meet(): a peer's sizes differ from this rank's. No data was moved.
  const std::optional<BoardMismatch>& mismatch() const { return mismatch_; }
  // Set if the call cannot be finished.
  const std::optional<Error>& failure() const { return memory_.failure(); }
  // Continues with an equal call at another address.
  void go_on(const BoardCall& call) { plan_.call = &call; }

  // Makes all possible steps; true if any was made.
  bool advance();
  void tell() { pipeline_.tell(); }
  bool could_advance() const;
  bool finished() const { return stage_ == Stage::kFinished; }
  // After meet(): the ranks that delay the call.
  std::vector<int> waiting_for() const;
  // Ends the call, finished or failed. After a failure, waits for peers that write into this rank's
  // memory. After one second, a stopped writer's target memory is kept until the writer goes on or
  // dies (transport/message/kept_memory.h).
  void end();

 private:
  enum class Stage : uint8_t { kOff, kShown, kAccepting, kMoving, kDraining, kFinished };
  // The counter by which another rank announces writes for this call.
  struct Writer {
    const StagingBuffer::Counter* word = nullptr;  // null: the rank cannot be writing
    uint64_t writing = 0;                          // value while the rank writes
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
  bool sums_all_ = false;  // this rank's wish, then the common decision
  bool lacks_staging_ = false;
  bool lost_ = false;
  std::optional<BoardMismatch> mismatch_;
};

}  // namespace hccl_like
