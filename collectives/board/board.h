#pragma once
// The board of a communicator whose ranks share a host: every rank shows the others, in memory that
// it alone writes, which call it makes and, if the call is small, its input. One cache line crosses
// between two ranks instead of a message.
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

// Any thread, except that one call's own line is one thread's at a time. Calls are named by their
// number in the communicator, modulo 2^32. The links must outlive it.
class Board {
 public:
  using CallSlot = BoardArea::CallSlot;

  // Takes an area for a new board and clears it. Returns the name of the lease (LeasedArea), which
  // the other ranks must be told; nothing if no area is free.
  static std::optional<uint32_t> take_area(Commons& commons);
  // Gives back an area for which no board was made.
  static void give_back_area(Commons& commons, uint32_t name);

  // A board over areas that the ranks told each other; `areas` by rank, this rank's own included.
  // Every rank makes one, though some may see peers that others don't: open() is the same for all
  // in the end. Null if a rank has no area; then all ranks get null, and the caller keeps his area.
  // `links` by rank, null for this one.
  static std::shared_ptr<Board> make(std::shared_ptr<Commons> commons, uint64_t communicator,
                                     int rank, std::span<Link* const> links,
                                     std::span<const std::optional<uint32_t>> areas);
  // The board of a part of this one's ranks, given in the order of the new communicator. `number`:
  // the how many-th split; all ranks of this board agree on it. Null where no rank gets one. Ranks
  // outside the part have no influence on whether it opens: they may have ended the parent.
  static std::shared_ptr<Board> split(const std::shared_ptr<Board>& parent, uint64_t communicator,
                                      std::span<const int> ranks, uint32_t number);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  enum class State {
    kOpening,  // not known yet: a rank has not come that far
    kOpen,     // every rank sees every other
    kClosed,   // some do not, so all do without
  };
  // Looks again while it is opening. By one thread, the driver.
  State open();
  bool is_open() const { return state_.load(std::memory_order_acquire) == State::kOpen; }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  // Whether this rank's line of the call may be written: all ranks are done with what it held
  // before.
  bool writable(uint32_t call);
  // The ranks for which it has to wait if not.
  std::vector<int> behind(uint32_t call) const;
  // Where this rank's payload of `bytes` goes, at most BoardArea::kPayloadBytes.
  std::byte* payload(uint32_t call, size_t bytes);
  // Shows the call. Others are woken by ring(), which may come as late as this rank has to wait:
  // until then they see it all the same.
  void show(uint32_t call, uint64_t fingerprint, size_t bytes);

  // Shows the call no longer: it has failed here, so a rank that comes late must not succeed.
  void withdraw(uint32_t call);

  // What a rank shows of the call, null if it has not come that far. Valid until done(call).
  const CallSlot* call_slot(int rank, uint32_t call) const;
  // Whether a rank has not taken back a line that was there. Asked after what its staging buffer,
  // or its memory, held for the call has been read: both may serve others once the line is taken
  // back and a full fence was made.
  bool still_shows(int rank, uint32_t call) const {
    acquire_fence();
    return call_slot(rank, call) != nullptr;
  }
  // What such a line tells of its rank, before done(call).
  void note_done(int rank, const CallSlot& slot);
  // The payload of a line that is there. The size is the reader's own idea of it.
  const std::byte* payload(int rank, uint32_t call, size_t bytes) const;
  // This rank needs no line of the call any more. Once for each call that it has shown or will not
  // show, in any order. The board must be open.
  void done(uint32_t call);
  // The other ranks. They are done with a call when they have said so, when they have no such board
  // any more, when they leave and when they have died. Also when this board is gone. Once it is
  // open.
  std::shared_ptr<const Readers> readers() const { return readers_; }

  // This process's memory for payloads too large for an area, and what a rank has put into a
  // staging buffer of its own. Null if a rank names one that there is not.
  Shelf& staging_buffers() const { return commons_->staging_buffers(); }
  const std::byte* staging_buffer(int rank, uint32_t piece) const;
  Link* link(int rank) const { return peers_[static_cast<size_t>(rank)].link; }
  // The names of this process's memory that peers may map.
  Exports& exports() const { return commons_->exports(); }
  // Wakes ranks that sleep, so that they look at what this rank has changed. Waits until other
  // cores have given up the lines that it has written, which they do meanwhile if this comes later.
  void ring();

 private:
  // Half of the lines are in use while the other half waits to be done with: one look at the peers
  // opens half of them.
  static constexpr uint32_t kBlock = BoardArea::kCallSlots / 2;

  struct Peer {
    Link* link = nullptr;                         // null: this rank itself
    std::atomic<const BoardArea*> area{nullptr};  // null until it is known
    uint32_t lease = 0;                           // the name of that area; not of this rank's own
    std::atomic<uint32_t> told_done{
        UINT32_MAX};  // the last call that it is done with, by its lines
  };

  // Whom this rank shows something; apart from the board, which they outlive.
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
  // Null if this rank does not see the peer's memory.
  static const BoardArea* seen(const Link& link, uint32_t name);
  uint64_t stamp(uint32_t call) const { return seal_ | call; }
  // Of an area of a board with this seal that has been made: whether its owner is done with all
  // calls up to `call`, or has that board no more.
  static bool is_done(const BoardArea& area, uint64_t seal, uint32_t call);
  // The last call that this rank is done with, -1 if none.
  uint32_t last_done() const;
  bool done_before(const Peer& peer, uint32_t block) const;
  // Whether the peer has ended this board. False if it has not made the board yet.
  bool is_over(const Peer& peer) const;
  State look_at_peers();
  State find_peers();
  State find(size_t rank);

  const std::shared_ptr<Commons> commons_;
  const std::optional<uint32_t> area_;  // nothing: none was free, and the board is closed
  BoardArea* const own_;                // null: likewise
  const uint64_t
      seal_;  // high half of every stamp: tells this communicator's from what lay here before
  const int rank_;
  std::vector<Peer> peers_;
  std::atomic<State> state_{State::kOpening};
  std::shared_ptr<const Readers> readers_;  // set when it opens

  // Of a part: where the members tell their areas. Each member keeps its area of the parent for as
  // long as it has the part.
  std::shared_ptr<Board> parent_;
  std::vector<int> parent_ranks_;
  uint32_t number_ = 0;

  std::atomic<uint32_t> open_block_{1};  // the last block that may be written
  std::atomic<bool> counting_{false};    // guards these two, for a moment
  uint32_t done_ = UINT32_MAX;           // all calls up to this one
  uint32_t done_after_ = 0;              // bit i: call done_ + 1 + i
  static constexpr uint32_t kDoneAhead = 32;
  static_assert(BoardArea::kCallSlots <= kDoneAhead);
};

}  // namespace hccl_like
