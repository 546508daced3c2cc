#pragma once
// One large call between ranks of one host, without messages: each rank reduces or copies straight out of what the others
// show, and writes straight into it where it may.
//
// Memory that peers can map (Call::shared_input, shared_regions, shared_output) is read and written where it is. All other goes by in
// laps through the lanes of shared memory, a few at a time, so that what is reduced is still in a cache; between two ranks that
// exchange, through cells that go to and fro (transport/pair_cells.h). Either way a
// call takes two meetings of the ranks, plus one if memory is shared, and all wait until nobody uses theirs any more; one
// meeting where every rank makes all of its own result.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/board/board_call.h"
#include "collectives/direct/known_memory.h"
#include "collectives/direct/lane.h"
#include "collectives/direct/roles.h"
#include "collectives/direct/shape.h"
#include "transport/pair_cells.h"
#include "transport/pieces.h"

namespace hccl_like {

// Whether a call can go this way, if it is not one for the board. The same on all ranks.
bool runs_direct(const Call& call, int ranks);

// Used by one thread at a time, and reused.
class DirectRun {
 public:
  // Takes a lane for the call, which is borrowed until end(); false if none is free now: show_no_lane() then.
  bool begin(const BoardCall& call);
  // Shows the call, and that this rank has no lane for it: no rank runs it then, all make it by messages.
  static void show_no_lane(const BoardCall& call);
  // Shows the call and what this rank offers, as Board::show() does. The line must be writable.
  void show();
  // All lines are there.
  void meet();
  bool met() const { return stage_ != Stage::kOff && stage_ != Stage::kShown; }
  // After meet(): a rank has no lane for the call. Nothing is moved then, and this one's lane is given back.
  bool lacks_lane() const { return lacks_lane_; }
  // After meet(): a rank gives this one another number of bytes than expected, or expects another. Nothing is moved then.
  const std::optional<BoardMismatch>& mismatch() const { return mismatch_; }
  // Another rank's memory could not be mapped again. The call will not be finished.
  const std::optional<Error>& failure() const { return failure_; }
  // The same call, kept elsewhere from now on.
  void go_on(const BoardCall& call) { call_ = &call; }

  // Makes the steps that can be made now, one of some hundred KiB at most; true if any was.
  bool advance();
  // Wakes ranks that sleep until this one has come as far as it has now. Not part of every step, as it takes as long as one
  // of some KiB: to be called when this rank is to wait for longer than some polls.
  void tell();
  bool could_advance() const { return next() != Step::kNone; }
  bool finished() const { return stage_ == Stage::kFinished; }
  // Ranks that it waits for, after meet().
  std::vector<int> waiting_for() const;
  // Whether it would have used cells, if its two ranks had any.
  bool misses_cells() const { return uses_cells() && cells() == nullptr; }
  // The call is over or has failed. If it failed and another rank writes into this rank's memory, it waits for that rank. A rank that was
  // stopped meanwhile is waited for a second; then the memory is kept until that rank goes on or dies (transport/kept_memory.h).
  void end();

 private:
  enum class Stage : uint8_t { kOff, kShown, kAccepting, kMoving, kDraining, kFinished };
  enum class Step : uint8_t { kNone, kSettle, kKeep, kPut, kWork, kFetch, kFinish };
  struct Place {
    size_t handle = 0;
    InputPlaces::Place at;
  };
  struct Peer {
    const Lane* lane = nullptr;
    uint64_t base = 0;
    uint32_t first_slot = 0;
    uint64_t input_offset = 0,
             output_offset = 0;   // in its mappings, of what `input` and `output` point to
    uint32_t input_handles = 0;   // of an input that is several pieces, else 0
    std::vector<Place> places;    // of that, in what the handles name
    Pieces input;                 // what it gives to this rank
    std::byte* output = nullptr;  // what it takes from this rank
    size_t gives = 0, takes = 0;  // bytes of these
  };
  using Mapping = PeerMemory::Mapping;
  struct Mappings {
    std::vector<Mapping> input;
    Mapping output;
  };

  // direct_sizes.cc: how much goes from whom to whom.
  void measure();
  size_t input_chunk(int to) const;
  size_t output_chunk(int from) const;
  void tell_pairs();
  void find(int rank);
  void agree_about_laps(size_t largest);

  bool would_sum_all() const;

  // direct_places.cc: inputs that are several pieces, and where those of others lie.
  bool shares_input() const { return call_->shared_input != nullptr || input_handles_ > 0; }
  std::span<const hcd_ipc_handle> own_handles() const;
  uint32_t tell_places();
  void read_places(Peer& peer) const;
  static bool place_input(Peer& peer, std::span<const Mapping> mappings);
  static bool place_output(Peer& peer, const Mapping& mapping);

  // direct_meeting.cc: what the ranks agree about.
  bool all_have_lanes() const;
  uint64_t name_input(std::span<const hcd_ipc_handle> handles);
  void read_offers();
  bool holds_known();
  void map_known();
  uint64_t map_all();
  uint64_t map(int rank, const Handles& handles);
  void agree();
  void remember(uint64_t accepted);
  void settle(uint64_t accepted);
  void settle(RankSet inputs, RankSet outputs);

  // direct_cells.cc: what two ranks put for each other.
  PairCells* cells() const;
  bool uses_cells() const;
  std::byte* place_for(uint32_t lap);
  std::optional<uint32_t> cell_of(uint32_t lap) const;
  void find_input(uint32_t lap);
  void keep(std::optional<uint32_t> cell) const;
  void keep_unread_cells() const;
  void take_back_cells() const;
  const std::byte* next_input(size_t bytes) const;
  bool awaits_cell() const;

  // direct_run.cc: who waits for whom.
  void let_lane_go();
  Step next() const;
  void count(Lane::Counter& counter, uint64_t laps);
  bool finish_is_awaited() const;
  // Laps that another rank has told.
  uint64_t told(int rank, Lane::Counter Lane::*counter) const;
  bool all_told(Lane::Counter Lane::*counter, uint64_t laps) const;
  bool has_accepted(int rank) const;
  bool slot_is_free(uint32_t lap) const;
  bool inputs_are_there(uint32_t lap) const;
  // Whether what was read of a rank is what it put there for this call.
  bool still_shown(int rank) const;
  bool lends() const;
  // Where another rank tells that it writes for this call.
  struct Writer {
    const Lane::Counter* word = nullptr;  // null: it cannot be writing
    uint64_t writing = 0;                 // the word's value while it writes
    bool writes() const {
      return word != nullptr && word->load(std::memory_order_acquire) == writing;
    }
  };
  Writer writer(int rank) const;
  void wait_for_writers() const;

  // direct_moves.cc: what is copied.
  void put(uint32_t number);
  void put(Span lap, std::byte* slot);
  void fill(std::byte* to, const Pieces& from) const;
  void write_lane(std::byte* to, const std::byte* from, size_t bytes, bool in_order) const;
  void write_cell(std::byte* to, const std::byte* from, size_t bytes) const;
  // False if a rank took back what this one was to write into.
  bool work(Span lap, uint32_t number);
  // Divides what is long among idle cores, as reduce() does.
  template <class Copy>
  void move(const Pieces& to, const Pieces& from, const Copy& copy,
            const std::byte* next = nullptr) const;
  auto reads_input(int rank) const;
  auto reads_lane(int rank) const;
  void copy(Span lap, uint32_t number);
  void keep_own(Span lap);
  void fetch(Span lap, uint32_t number);
  bool begin_writing();
  // What of a lap this rank, which is one of the two, moves.
  Span own_part(Span lap, int from, int to) const;
  // direct_sums.cc: what is reduced.
  Span share_of(Span lap) const;
  void reduce(Span range, Span lap, uint32_t number);
  void reduce_part(Span range, Span lap, uint32_t number) const;
  size_t find_sources(std::span<const std::byte*> sources, const std::byte* own, size_t offset,
                      size_t bytes, Span lap, uint32_t number) const;
  void spread(const std::byte* result, size_t offset, size_t bytes, bool goes_past) const;

  // What of a lap `rank` gives this one, and takes from it.
  Span given(int rank, Span lap) const { return within(lap, peer(rank).gives); }
  Span taken(int rank, Span lap) const { return within(lap, peer(rank).takes); }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  Pieces own_input(int to, Span range) const;
  Pieces own_output(int from, Span range) const;
  Pieces given_input(int from, Span range) const;
  size_t slot_begin(uint32_t first, uint32_t lap) const {
    return (first + lap) % slots_ * slot_bytes_;
  }
  std::byte* slot(uint32_t lap) const {
    return lane_->payload.data() + slot_begin(first_slot_, lap);
  }
  std::byte* slot_of(int rank, uint32_t lap) const;
  std::byte* input_of(int rank, uint32_t lap) const {
    return given_cell_ ? cells()->data(*given_cell_) : slot_of(rank, lap);
  }

  const BoardCall* call_ = nullptr;
  Stage stage_ = Stage::kOff;
  int rank_ = 0;
  int ranks_ = 1;
  uint32_t lane_number_ = 0;
  Lane* lane_ = nullptr;
  uint64_t base_ = 0;
  size_t slot_bytes_ = 1;
  uint32_t slots_ = Lane::kSlots;  // that a lane is cut into
  uint32_t first_slot_ = 0;
  bool alternates_ = false;           // between two lanes
  bool exchanges_ = false;            // two ranks, which give each other alike
  std::optional<uint32_t> own_cell_;  // into which this rank puts, if it is none of its slots
  std::optional<uint32_t>
      given_cell_;  // with the other rank's input of the lap at work, if it is in none of its slots
  Shape shape_;
  Roles roles_;
  bool sums_all_ = false;  // what this rank wishes, and then what all do
  std::vector<Peer> peers_;
  std::vector<Mappings> mappings_;   // by rank, from map_all() to remember()
  std::vector<Mapping> held_;        // of others' memory, of an agreement that was known
  std::vector<MemoryOffer> offers_;  // by rank
  uint32_t input_handles_ = 0;  // of its own input, if that is several pieces and all of it is told
  std::shared_ptr<const KnownMemory::Agreement> agreement_;
  Exports::Last last_input_, last_output_;
  uint64_t most_laps_ = 0;
  uint32_t put_ = 0, worked_ = 0, fetched_ = 0;
  size_t kept_ = 0;           // bytes of the payload of which this rank's own part is in place
  bool past_caches_ = false;  // copies go past them
  bool lost_ = false;
  bool lacks_lane_ = false;
  std::optional<BoardMismatch> mismatch_;
  std::optional<Error> failure_;
  bool untold_ = false;
};

}  // namespace hccl_like
