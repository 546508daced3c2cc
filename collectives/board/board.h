#pragma once
// Board of a communicator whose ranks share a host. In shared memory that only the owner writes,
// each rank publishes the call it makes and, for a small call, its input. One cache-line transfer
// between two ranks replaces a message.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/board/area.h"
#include "core/machine/fence.h"
#include "transport/link/link.h"
#include "transport/same_host/commons.h"

namespace hccl_like {

// Thread-safe, except that this rank's slot of a call belongs to one thread at a time. Calls are
// identified by their number in the communicator, modulo 2^32. The links must outlive the board.
class Board {
 public:
  using CallSlot = BoardArea::CallSlot;

  // Takes and clears a shared-memory area. Returns the lease name (LeasedArea), which the other
  // ranks must learn; nullopt if no area is free.
  static std::optional<uint32_t> take_area(Commons& commons);
  // Returns an area for which no board was made.
  static void give_back_area(Commons& commons, uint32_t name);

  // Makes a board over `areas`, by rank, including this rank's own. `links`: by rank, null for this
  // one. Every rank must make one, even if it cannot map some peers: open() ends alike on all
  // ranks. Null on all ranks if any rank has no area; the caller then still owns its area.
  static std::shared_ptr<Board> make(std::shared_ptr<Commons> commons, uint64_t communicator,
                                     int rank, std::span<Link* const> links,
                                     std::span<const std::optional<uint32_t>> areas);
  // Makes the board of a subgroup, with `ranks` in the order of the new communicator. `number`:
  // index of the split, equal on all ranks of this board. Null, on all ranks alike, without a
  // parent or beyond kChildren splits. Ranks outside the subgroup, even if they have ended the
  // parent, do not matter.
  static std::shared_ptr<Board> split(const std::shared_ptr<Board>& parent, uint64_t communicator,
                                      std::span<const int> ranks, uint32_t number);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  enum class State {
    kOpening,  // some rank has not published its state yet
    kOpen,     // every rank maps every other
    kClosed,   // some ranks cannot map others, so no rank uses the board
  };
  // Checks the peers again while the board is opening. Driver only.
  State open();
  bool is_open() const { return state_.load(std::memory_order_acquire) == State::kOpen; }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  // Whether this rank may write its slot: all ranks have finished with the previous content.
  bool writable(uint32_t call);
  // The ranks for which writable() is false.
  std::vector<int> behind(uint32_t call) const;
  // Memory for this rank's payload of `bytes`, at most BoardArea::kPayloadBytes.
  std::byte* payload(uint32_t call, size_t bytes);
  // Publishes the call. Polling ranks see it at once; ring() wakes sleeping ranks and may be
  // delayed until this rank has to wait.
  void show(uint32_t call, uint64_t fingerprint, size_t bytes);

  // Retracts a call that failed here, so that a late rank cannot complete it.
  void withdraw(uint32_t call);

  // Slot of `rank` for the call; null until published. Valid until done(call).
  const CallSlot* call_slot(int rank, uint32_t call) const;
  // True until `rank` withdraws its slot. Check after reading its staging buffer or its memory for
  // the call: the owner may reuse both after withdraw() and a full fence.
  bool still_shows(int rank, uint32_t call) const {
    acquire_fence();
    return call_slot(rank, call) != nullptr;
  }
  // Records the completion counter in a peer's slot. Call before done(call).
  void note_done(int rank, const CallSlot& slot);
  // Payload of a published slot. `bytes`: the size that this rank expects.
  const std::byte* payload(int rank, uint32_t call, size_t bytes) const;
  // This rank reads no slot of the call any more. Once for each call, shown or not, in any order.
  // The board must be open.
  void done(uint32_t call);
  // The other ranks; valid once the board is open, and outlives it. A rank is done with a call if
  // its counter says so, if it has ended its board, or if it is leaving or has died.
  std::shared_ptr<const Readers> readers() const { return readers_; }

  // This process's staging buffers, and a buffer of `rank`; null if `piece` does not exist.
  Shelf& staging_buffers() const { return commons_->staging_buffers(); }
  const std::byte* staging_buffer(int rank, uint32_t piece) const;
  Link* link(int rank) const { return peers_[static_cast<size_t>(rank)].link; }
  // Names of this process's memory that peers may map.
  Exports& exports() const { return commons_->exports(); }
  // Wakes sleeping ranks, so that they see this rank's changes. Its full fence waits until other
  // cores have released the written cache lines, so a later call costs less.
  void ring();

 private:
  // One check of the peers opens half of the slots for writing.
  static constexpr uint32_t kBlock = BoardArea::kCallSlots / 2;

  struct Peer {
    Link* link = nullptr;                         // null: this rank itself
    std::atomic<const BoardArea*> area{nullptr};  // null until known
    uint32_t lease = 0;                           // name of that area; unset for this rank
    // Last finished call, as read from the peer's slots.
    std::atomic<uint32_t> told_done{UINT32_MAX};
  };

  // The ranks that read this rank's shared memory. Outlives the board.
  class OtherRanks final : public Readers {
   public:
    struct Rank {
      const BoardArea* area;
      const PeerCommons* commons;
    };
    OtherRanks(std::vector<Rank> ranks, uint64_t seal) : ranks_(std::move(ranks)), seal_(seal) {}
    bool are_done_with(uint32_t call) const override;

   private:
    const std::vector<Rank> ranks_;
    const uint64_t seal_;
  };

  Board(std::shared_ptr<Commons> commons, std::optional<uint32_t> area, uint64_t communicator,
        int rank, size_t size);
  BoardArea& own() const { return *own_; }
  const BoardArea& area(int rank) const {
    return *peers_[static_cast<size_t>(rank)].area.load(std::memory_order_relaxed);
  }
  static BoardArea& mapped(Commons& commons, uint32_t name);
  // Null if this rank does not map the peer's memory.
  static const BoardArea* seen(const Link& link, uint32_t name);
  uint64_t stamp(uint32_t call) const { return seal_ | call; }
  // Whether the owner of `area` has finished all calls up to `call` or ended the board with this
  // seal, which it must have made.
  static bool is_done(const BoardArea& area, uint64_t seal, uint32_t call);
  // UINT32_MAX if none.
  uint32_t last_done() const;
  bool done_before(const Peer& peer, uint32_t block) const;
  // Whether the peer has ended this board; false before the peer has made it.
  bool is_over(const Peer& peer) const;
  State look_at_peers();
  State find_peers();
  State find(size_t rank);

  const std::shared_ptr<Commons> commons_;
  const std::optional<uint32_t> area_;  // nullopt: none was free, and the board is closed
  BoardArea* const own_;                // null in that case
  // High half of every stamp; distinguishes this communicator from earlier users of the area.
  const uint64_t seal_;
  const int rank_;
  std::vector<Peer> peers_;
  std::atomic<State> state_{State::kOpening};
  std::shared_ptr<const Readers> readers_;  // set when the board opens

  // Subgroups only. Members publish their areas in the parent's areas and keep those alive.
  std::shared_ptr<Board> parent_;
  std::vector<int> parent_ranks_;
  uint32_t number_ = 0;

  std::atomic<uint32_t> open_block_{1};  // last block that may be written
  std::atomic<bool> counting_{false};    // spin lock for the next two
  uint32_t done_ = UINT32_MAX;           // all calls up to this one are finished
  uint32_t done_after_ = 0;              // bit i: call done_ + 1 + i
  static constexpr uint32_t kDoneAhead = 32;
  static_assert(BoardArea::kCallSlots <= kDoneAhead);
};

}  // namespace hccl_like
