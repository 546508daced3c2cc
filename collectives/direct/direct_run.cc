#include "collectives/direct/direct_run.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/deadline.h"
#include "core/fence.h"

namespace hccl_like {
namespace {

// How long a rank that gave up waits for one that writes into its memory: far longer than a step takes, unless that
// rank was stopped.
constexpr auto kWriterPatience = std::chrono::seconds(1);

// The bytes that Shape calls the payload.
size_t payload_of(const BoardCall& call) {
  const auto own = static_cast<size_t>(call.board->rank());
  switch (call.collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return call.output->bytes(own);
    case Collective::kAllToAll:
    case Collective::kAllGather:
    case Collective::kGather:
      return call.input->bytes(own);
    case Collective::kReduce:
      return call.input->total_bytes();
    default:
      return std::max(call.input->total_bytes(), call.output->total_bytes());
  }
}

// What a lap takes of each lane. More ranks than cores take turns: the more one of them finds, the fewer turns they need.
// One writer and one reader work side by side and stay ahead of nobody: their slots should leave room in one core's cache.
size_t room_of(const BoardCall& call) {
  switch (call.collective) {
    case Collective::kBroadcast:
      return call.board->size() == 2 ? Lane::kSlotBytes / 8 : Lane::kSlotBytes / 2;
    case Collective::kAllGather:
    case Collective::kGather:
      return Lane::kSlotBytes / 2;
    default:
      return Lane::kSlotBytes;
  }
}

}  // namespace

bool runs_direct(const Call& call, int ranks, bool uneven) {
  switch (call.collective) {
    case Collective::kSend:
    case Collective::kRecv:
    case Collective::kBarrier:
      return false;
    default:
      // A premul-sum scales what it must not write.
      return !uneven && ranks <= kMostDirectRanks && call.op != ReduceOp::kPreMulSum;
  }
}

bool DirectRun::begin(const BoardCall& call) {
  const auto lane = call.board->lanes().take();
  if (!lane) return false;
  call_ = &call;
  rank_ = call.board->rank();
  ranks_ = call.board->size();
  lane_number_ = *lane;
  lane_ = reinterpret_cast<Lane*>(call.board->lanes().data(*lane));
  base_ = lane_->next_base;
  put_ = worked_ = fetched_ = 0;
  kept_laps_ = 0;
  lost_ = false;
  untold_ = false;
  peers_.assign(static_cast<size_t>(ranks_), {});
  offers_.assign(static_cast<size_t>(ranks_), {});
  const size_t payload = payload_of(call);
  const auto ranks = static_cast<size_t>(ranks_);
  slot_bytes_ = room_of(call);
  shape_ = Shape::of(call.collective, ranks_, payload, slot_bytes_);
  most_laps_ = shape_.laps;
  whole_input_ = payload * (shape_.kind == Shape::Kind::kChunks ? ranks : 1);
  whole_output_ = payload * (collects_chunks(call.collective) ? ranks : 1);
  roles_ = Roles(call.collective, rank_, ranks_, call.root, /*inputs=*/0, /*outputs=*/0);
  stage_ = Stage::kShown;
  return true;
}

DirectRun::Step DirectRun::next() const {
  if (lost_) return Step::kNone;
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
      // What frees a slot comes first, what fills one last.
      if (fetched_ < worked_ && all_told(&Lane::worked, fetched_ + 1)) return Step::kFetch;
      if (worked_ < shape_.laps && (worked_ < put_ || !roles_.puts()) &&
          inputs_are_there(worked_) && (!roles_.keeps_results() || slot_is_free(worked_)))
        return Step::kWork;
      if (roles_.puts() && put_ < shape_.laps && slot_is_free(put_)) return Step::kPut;
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
    case Step::kPut:
      put(shape_.lap(put_), slot(put_));
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
  lane_->next_base = base_ + most_laps_ + 1;
  if (stage_ == Stage::kFinished) {
    lanes.retire(lane_number_, call_->board->done_with(call_->number));
  } else {
    // The line has been taken back. What others read from now on they drop when they see that (still_shown).
    full_fence();
    if (call_->shared_output != nullptr) wait_for_writers();
    lanes.give_back(lane_number_);
  }
  stage_ = Stage::kOff;
  peers_.clear();
  agreement_.reset();
}

void DirectRun::wait_for_writers() const {
  const Deadline deadline = Deadline::after(kWriterPatience);
  for (int rank = 0; rank < ranks_; ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (rank == rank_ || peer.lane == nullptr) continue;
    const Link* link = call_->board->link(rank);
    while (peer.lane->writing.load(std::memory_order_acquire) == peer.base + 1 &&
           link->failure() == nullptr && !deadline.expired())
      std::this_thread::yield();
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
  return call_->board->line(rank, call_->number) != nullptr;
}

}  // namespace hccl_like
