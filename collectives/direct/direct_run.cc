#include "collectives/direct/direct_run.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "core/deadline.h"
#include "core/fence.h"
#include "core/log.h"
#include "transport/commons.h"
#include "transport/kept_memory.h"

namespace hccl_like {
namespace {

// How long a rank that gave up waits for one that writes into its memory: far longer than a step takes, unless that
// rank was stopped. Then the memory is kept.
constexpr auto kWriterPatience = std::chrono::seconds(1);
// What a rank copies to itself in one step.
constexpr size_t kOwnStep = 256 << 10;

}  // namespace

bool runs_direct(const Call& call, int ranks) {
  switch (call.collective) {
    case Collective::kSend:
    case Collective::kRecv:
    case Collective::kBarrier:
      return false;
    default:
      return ranks <= kMostDirectRanks;
  }
}

bool DirectRun::begin(const BoardCall& call) {
  call_ = &call;
  rank_ = call.board->rank();
  ranks_ = call.board->size();
  put_ = worked_ = fetched_ = 0;
  kept_ = 0;
  own_cell_.reset();
  given_cell_.reset();
  lost_ = lacks_lane_ = false;
  mismatch_.reset();
  failure_.reset();
  untold_ = false;
  peers_.assign(static_cast<size_t>(ranks_), {});
  offers_.assign(static_cast<size_t>(ranks_), {});
  measure();
  const auto lane = call.board->lanes().take(/*asks_first=*/!alternates_);
  if (!lane) return false;
  lane_number_ = *lane;
  lane_ = reinterpret_cast<Lane*>(call.board->lanes().data(*lane));
  base_ = lane_->next_base;
  first_slot_ = lane_->next_slot % slots_;
  input_handles_ = tell_places();
  sums_all_ = would_sum_all();
  roles_ = Roles(call.collective, rank_, ranks_, call.root, /*inputs=*/0, /*outputs=*/0, sums_all_);
  stage_ = Stage::kShown;
  return true;
}

DirectRun::Step DirectRun::next() const {
  if (lost_ || failure_) return Step::kNone;
  switch (stage_) {
    case Stage::kOff:
    case Stage::kShown:
    case Stage::kFinished:
      return Step::kNone;
    case Stage::kAccepting:
      for (int rank = 0; rank < ranks_; ++rank)
        if (!has_accepted(rank)) return Step::kNone;
      return Step::kSettle;
    case Stage::kMoving:
      // To copy a part while another rank reads it takes a quarter longer than one after the other.
      if (!roles_.staged() && !roles_.reducing() && kept_ < shape_.payload) return Step::kKeep;
      // What frees a slot comes first, what fills one last.
      if (fetched_ < worked_ && all_told(&Lane::worked, fetched_ + 1)) return Step::kFetch;
      if (worked_ < shape_.laps && (worked_ < put_ || !roles_.puts()) &&
          inputs_are_there(worked_) && (!roles_.keeps_results() || slot_is_free(worked_)))
        return Step::kWork;
      if (roles_.puts() && put_ < shape_.laps && slot_is_free(put_) && !awaits_cell())
        return Step::kPut;
      return Step::kNone;
    case Stage::kDraining:
      return !lends() || all_told(&Lane::finished, shape_.laps) ? Step::kFinish : Step::kNone;
  }
  return Step::kNone;
}

bool DirectRun::advance() {
  const Step step = next();
  switch (step) {
    case Step::kNone:
      return false;
    case Step::kSettle:
      agree();
      return true;
    case Step::kKeep:
      keep_own({kept_, std::min(kept_ + kOwnStep, shape_.payload)});
      return true;
    case Step::kPut:
      put(put_);
      count(lane_->put, ++put_);
      untold_ = true;
      break;
    case Step::kWork:
      if (!work(shape_.lap(worked_), worked_)) return false;
      count(lane_->worked, ++worked_);
      untold_ |= roles_.reducing();
      if (roles_.fetches(rank_)) break;
      count(lane_->finished, ++fetched_);
      untold_ |= finish_is_awaited();
      break;
    case Step::kFetch:
      fetch(shape_.lap(fetched_), fetched_);
      count(lane_->finished, ++fetched_);
      untold_ |= finish_is_awaited();
      break;
    case Step::kFinish:
      // Whoever gave up may have used his memory for something else already.
      for (int rank = 0; rank < ranks_; ++rank) lost_ = lost_ || !still_shown(rank);
      if (lost_) return false;
      stage_ = Stage::kFinished;
      return true;
  }
  if (fetched_ == shape_.laps) {
    tell();
    stage_ = Stage::kDraining;
    advance();
  }
  return true;
}

std::vector<int> DirectRun::waiting_for() const {
  // Those who are furthest behind: the others wait for them, too.
  std::vector<int> ranks;
  uint64_t least = UINT64_MAX;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_ || peers_[static_cast<size_t>(rank)].lane == nullptr) continue;
    uint64_t steps = has_accepted(rank) ? 1 : 0;
    for (const auto counter : {&Lane::put, &Lane::worked, &Lane::finished})
      steps += told(rank, counter);
    if (steps > least) continue;
    if (steps < least) ranks.clear();
    least = steps;
    ranks.push_back(rank);
  }
  return ranks;
}

void DirectRun::end() {
  if (stage_ == Stage::kOff) return;
  Shelf& lanes = call_->board->lanes();
  let_lane_go();
  if (stage_ == Stage::kFinished && lends()) {
    // All ranks have finished with it; of its counters they want to know no more than that they have grown.
    lanes.give_back(lane_number_);
  } else if (stage_ == Stage::kFinished) {
    lanes.retire(lane_number_, call_->board->readers(), call_->number);
  } else {
    // The line has been taken back. What others read from now on they drop when they see that (still_shown).
    full_fence();
    if (call_->shared_output != nullptr) wait_for_writers();
    lanes.give_back(lane_number_);
  }
  stage_ = Stage::kOff;
  mappings_.clear();
  held_.clear();
  mismatch_.reset();
  failure_.reset();
  agreement_.reset();
}

// The next call in it begins behind this one.
void DirectRun::let_lane_go() {
  lane_->next_base = base_ + most_laps_ + 1;
  lane_->next_slot = first_slot_ + static_cast<uint32_t>(most_laps_);
}

// Also a rank that this one has not met may write: it moves as soon as it sees all lines, if the memory is known. One whose line is not
// there after this rank has taken its own back and made a full fence will miss that one.
DirectRun::Writer DirectRun::writer(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.lane != nullptr) return {&peer.lane->writing, peer.base + 1};
  const Board::Line* const line = call_->board->line(rank, call_->number);
  if (line == nullptr || line->fingerprint != call_->fingerprint) return {};
  Offer offer;
  std::memcpy(&offer, call_->board->payload(rank, call_->number, sizeof offer), sizeof offer);
  const auto* const lane = reinterpret_cast<const Lane*>(call_->board->lane(rank, offer.lane));
  return lane == nullptr ? Writer{} : Writer{&lane->writing, offer.base + 1};
}

void DirectRun::wait_for_writers() const {
  const Deadline deadline = Deadline::after(kWriterPatience);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    const Writer writer = this->writer(rank);
    const Link* link = call_->board->link(rank);
    // A link learns of a death only from the thread that drives it, which may be this one.
    const PeerCommons& commons = *link->commons();
    while (writer.writes() && !commons.owner_died() && link->failure() == nullptr &&
           !deadline.expired())
      std::this_thread::yield();
    if (!writer.writes() || commons.owner_died()) continue;
    std::shared_ptr<void> memory = call_->output_owner.keep();
    log_warn("rank " + std::to_string(rank) +
             " was stopped while it wrote into the memory of rank " + std::to_string(rank_) +
             (memory ? ", which is kept until rank " + std::to_string(rank) + " goes on or dies"
                     : ", and may go on later: do not use that memory again"));
    if (memory)
      KeptMemory::of_process().add(std::move(memory), [commons, writer] {
        return !commons.owner_died() && writer.writes();
      });
  }
}

// Whether others use this rank's own memory.
bool DirectRun::lends() const { return roles_.input_mapped(rank_) || roles_.output_mapped(rank_); }

void DirectRun::count(Lane::Counter& counter, uint64_t laps) {
  counter.store(base_ + laps, std::memory_order_release);
}

void DirectRun::tell() {
  if (std::exchange(untold_, false)) call_->board->ring();
}

// Whether another rank may sleep until this one has finished as many laps as it has now.
bool DirectRun::finish_is_awaited() const {
  return fetched_ == shape_.laps ? roles_.lends() : fetched_ + Lane::kSlots <= shape_.laps;
}

uint64_t DirectRun::told(int rank, Lane::Counter Lane::*counter) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const uint64_t count = (peer.lane->*counter).load(std::memory_order_acquire);
  return count > peer.base ? count - peer.base : 0;
}

bool DirectRun::all_told(Lane::Counter Lane::*counter, uint64_t laps) const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != rank_ && told(rank, counter) < laps) return false;
  return true;
}

bool DirectRun::has_accepted(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const uint64_t word = peer.lane->accepted.load(std::memory_order_acquire);
  return (word & ~(Lane::kInputs | Lane::kOutputs)) == Lane::acceptance(peer.base);
}

bool DirectRun::slot_is_free(uint32_t lap) const {
  return lap < Lane::kSlots || all_told(&Lane::finished, lap - Lane::kSlots + 1);
}

bool DirectRun::inputs_are_there(uint32_t lap) const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (roles_.reads_lane_of(rank) && told(rank, &Lane::put) <= lap) return false;
  return true;
}

bool DirectRun::still_shown(int rank) const {
  return call_->board->still_shows(rank, call_->number);
}

}  // namespace hccl_like
