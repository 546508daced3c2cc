#include "collectives/same_host/large_call.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "core/base/deadline.h"
#include "core/base/log.h"
#include "core/machine/fence.h"
#include "transport/message/kept_memory.h"
#include "transport/same_host/commons.h"

namespace hccl_like {
namespace {

// How long a failed rank waits for a writer into its memory; much longer than any step.
constexpr auto kWriterTimeout = std::chrono::seconds(1);

// Copied before any check, since its owner could change it meanwhile.
Offer offer_of(const BoardCall& call, int rank) {
  Offer offer;
  std::memcpy(&offer, call.board->payload(rank, call.number, sizeof offer), sizeof offer);
  return offer;
}

// Null if the buffer does not exist.
const StagingBuffer* staging_of(const BoardCall& call, int rank, const Offer& offer) {
  return reinterpret_cast<const StagingBuffer*>(call.board->staging_buffer(rank, offer.staging));
}

bool has_accepted(const BlockPlan::Peer& peer) {
  const uint64_t word = peer.staging->accepted.load(std::memory_order_acquire);
  return (word & ~(StagingBuffer::kInputs | StagingBuffer::kOutputs)) ==
         StagingBuffer::acceptance(peer.base);
}

void show_offer(const BoardCall& call, const Offer& offer) {
  std::memcpy(call.board->payload(call.number, sizeof offer), &offer, sizeof offer);
  call.board->show(call.number, call.fingerprint(), call.bytes);
}

}  // namespace

bool is_large_call(const Call& call, int ranks) {
  return !is_point_to_point(call.collective) && call.collective != Collective::kBarrier &&
         ranks <= kMostLargeCallRanks;
}

bool LargeCall::begin(const BoardCall& call) {
  lost_ = lacks_staging_ = false;
  mismatch_.reset();
  plan_.measure(call);
  const auto number = call.board->staging_buffers().take(/*asks_first=*/!plan_.alternates);
  if (!number) return false;
  staging_number_ = *number;
  plan_.staging = reinterpret_cast<StagingBuffer*>(call.board->staging_buffers().data(*number));
  plan_.first_slot = plan_.staging->next_slot % plan_.slots.count;
  base_ = plan_.staging->next_base;
  memory_.begin(plan_);
  pipeline_.begin(plan_, base_);
  sums_all_ = prefers_to_sum_all(plan_, memory_.shares());
  plan_.roles = Roles(plan_.collective, plan_.rank, plan_.ranks, call.call->root, /*inputs=*/0,
                      /*outputs=*/0, sums_all_);
  stage_ = Stage::kShown;
  return true;
}

void LargeCall::show() {
  Offer offer{.staging = staging_number_,
              .first_slot = plan_.first_slot,
              .base = base_,
              .sums_all = sums_all_};
  if (!sums_all_) memory_.offer(offer);
  if (plan_.call->plan->chunks == Chunks::kPairs) {
    offer.largest = plan_.shape.payload;
    plan_.tell_sizes(*plan_.staging);
  }
  // Stages the blocks that are certain to be staged before the slot is published.
  if (plan_.roles.puts() && (!memory_.shares_input() || sums_all_)) pipeline_.stage_first_blocks();
  show_offer(*plan_.call, offer);
  // Copies own data while the other ranks arrive.
  pipeline_.copy_own_first();
}

void LargeCall::show_no_staging(const BoardCall& call) {
  log_info([&] {
    return "no staging buffer of shared memory is left for a call of " +
           std::to_string(call.bytes) + " bytes: it goes by messages";
  });
  show_offer(call, {.staging = Offer::kNone});
}

void LargeCall::meet() {
  lacks_staging_ = !all_have_staging();
  if (lacks_staging_) {
    // All ranks learn this before they read any staging buffer, so no rank reads this one. A call
    // that another thread continues comes here twice.
    if (stage_ == Stage::kOff) return;
    give_staging_up();
    plan_.call->board->staging_buffers().give_back(staging_number_);
    stage_ = Stage::kOff;
    return;
  }
  read_offers();
  const bool sane = std::ranges::all_of(
      plan_.peers, [](const BlockPlan::Peer& one) { return one.staging != nullptr; });
  // An invalid buffer name delays the call until its timeout.
  if (!sane || mismatch_) return;
  if (!memory_.any()) {
    if (!sums_all_ && plan_.roles.sums_all()) plan_.settle(0, 0);
    stage_ = Stage::kMoving;
  } else if (const auto accepted = memory_.known()) {
    // Published although known, since other ranks may have forgotten.
    accept(*accepted);
    memory_.settle(*accepted);
    stage_ = Stage::kMoving;
  } else {
    accept(memory_.map_all());
    plan_.call->board->ring();
    stage_ = Stage::kAccepting;
  }
}

bool LargeCall::all_have_staging() const {
  for (int rank = 0; rank < plan_.ranks; ++rank)
    if (rank != plan_.rank && offer_of(*plan_.call, rank).staging == Offer::kNone) return false;
  return true;
}

void LargeCall::read_offers() {
  const BoardCall& call = *plan_.call;
  size_t largest = 0;
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    const Offer offer = offer_of(call, rank);
    BlockPlan::Peer& peer = plan_.peers[static_cast<size_t>(rank)];
    peer.staging = staging_of(call, rank, offer);
    peer.base = offer.base;
    peer.first_slot = offer.first_slot % plan_.slots.count;
    largest = std::max<size_t>(largest, offer.largest);
    sums_all_ = sums_all_ && offer.sums_all != 0;
    if (peer.staging == nullptr) continue;
    ChunkSizes sizes = plan_.sizes_of(rank);
    if (call.plan->chunks == Chunks::kPairs) {
      std::memcpy(&sizes, &peer.staging->sizes[static_cast<size_t>(plan_.rank)], sizeof sizes);
      compare(rank, sizes);
    }
    memory_.read(rank, offer, sizes);
  }
  plan_.agree_about_blocks(largest);
}

void LargeCall::compare(int rank, const ChunkSizes& told) {
  const BlockPlan::Peer& peer = plan_.peer(rank);
  const auto expect = [&](bool moves, uint64_t bytes, size_t expected) {
    if (moves && bytes != expected && !mismatch_)
      mismatch_ = {rank, plan_.call->fingerprint(), bytes, expected};
  };
  expect(plan_.roles.path(rank, plan_.rank) != Path::kNone, told.gives, peer.gives);
  expect(plan_.roles.path(plan_.rank, rank) != Path::kNone, told.takes, peer.takes);
}

void LargeCall::accept(uint64_t accepted) {
  plan_.staging->accepted.store(StagingBuffer::acceptance(base_) | accepted,
                                std::memory_order_release);
}

bool LargeCall::all_accepted() const { return std::ranges::all_of(plan_.peers, has_accepted); }

// After all ranks have reported the memory that they can map.
void LargeCall::agree() {
  uint64_t accepted = StagingBuffer::kInputs | StagingBuffer::kOutputs;
  for (const BlockPlan::Peer& peer : plan_.peers)
    accepted &= peer.staging->accepted.load(std::memory_order_relaxed);
  memory_.conclude(accepted);
  memory_.settle(accepted);
  stage_ = Stage::kMoving;
}

bool LargeCall::could_advance() const {
  if (lost_ || failure()) return false;
  switch (stage_) {
    case Stage::kAccepting:
      return all_accepted();
    case Stage::kMoving:
      return pipeline_.could_advance();
    case Stage::kDraining:
      return may_finish();
    default:
      return false;
  }
}

bool LargeCall::advance() {
  if (lost_ || failure()) return false;
  switch (stage_) {
    case Stage::kAccepting:
      if (!all_accepted()) return false;
      agree();
      return true;
    case Stage::kMoving:
      if (!pipeline_.advance()) return false;
      if (!pipeline_.finished()) return true;
      tell();
      stage_ = Stage::kDraining;
      advance();
      return true;
    case Stage::kDraining:
      if (!may_finish()) return false;
      // A failed rank may have reused its memory already.
      for (int rank = 0; rank < plan_.ranks; ++rank)
        lost_ = lost_ || !plan_.call->board->still_shows(rank, plan_.call->number);
      if (lost_) return false;
      stage_ = Stage::kFinished;
      return true;
    default:
      return false;
  }
}

// No peer accesses this rank's memory any more.
bool LargeCall::may_finish() const {
  return !plan_.shares_own() || pipeline_.all_told(&StagingBuffer::finished, plan_.shape.blocks);
}

// The ranks furthest behind; all others wait for them, too.
std::vector<int> LargeCall::waiting_for() const {
  std::vector<int> ranks;
  uint64_t least = UINT64_MAX;
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    const BlockPlan::Peer& peer = plan_.peer(rank);
    if (rank == plan_.rank || peer.staging == nullptr) continue;
    uint64_t steps = has_accepted(peer) ? 1 : 0;
    for (const auto counter :
         {&StagingBuffer::put, &StagingBuffer::worked, &StagingBuffer::finished})
      steps += pipeline_.told(rank, counter);
    if (steps > least) continue;
    if (steps < least) ranks.clear();
    least = steps;
    ranks.push_back(rank);
  }
  return ranks;
}

void LargeCall::end() {
  if (stage_ == Stage::kOff) return;
  Shelf& staging_buffers = plan_.call->board->staging_buffers();
  give_staging_up();
  if (stage_ == Stage::kFinished && plan_.shares_own()) {
    // All ranks have finished. Readers of its counters only need to see that they have grown.
    staging_buffers.give_back(staging_number_);
  } else if (stage_ == Stage::kFinished) {
    staging_buffers.retire(staging_number_, plan_.call->board->readers(), plan_.call->number);
  } else {
    // The slot is withdrawn. Readers drop what they read from now on (Board::still_shows).
    full_fence();
    if (plan_.call->call->shared_output) wait_for_writers();
    staging_buffers.give_back(staging_number_);
  }
  stage_ = Stage::kOff;
  mismatch_.reset();
  memory_.end();
}

// The next call in this buffer begins beyond this call's counters and slots.
void LargeCall::give_staging_up() {
  plan_.staging->next_base = base_ + plan_.most_blocks + 1;
  plan_.staging->next_slot = plan_.first_slot + static_cast<uint32_t>(plan_.most_blocks);
}

// A rank that this one has not met may write, too: with known memory it starts once it sees all
// slots. A rank whose slot is missing after withdraw() and the fence will see the withdrawal.
LargeCall::Writer LargeCall::writer(int rank) const {
  const BlockPlan::Peer& peer = plan_.peer(rank);
  if (peer.staging != nullptr) return {&peer.staging->writing, peer.base + 1};
  const BoardCall& call = *plan_.call;
  const Board::CallSlot* const line = call.board->call_slot(rank, call.number);
  if (line == nullptr || line->fingerprint != call.fingerprint()) return {};
  const Offer offer = offer_of(call, rank);
  const StagingBuffer* const staging = staging_of(call, rank, offer);
  return staging == nullptr ? Writer{} : Writer{&staging->writing, offer.base + 1};
}

void LargeCall::wait_for_writers() const {
  const Deadline deadline = Deadline::after(kWriterTimeout);
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (rank == plan_.rank) continue;
    const Writer writer = this->writer(rank);
    const Link* link = plan_.call->board->link(rank);
    // A link detects a death only in the thread that drives it, which may be this one.
    const PeerCommons& commons = *link->commons();
    while (writer.writes() && !commons.owner_died() && link->failure() == nullptr &&
           !deadline.expired())
      std::this_thread::yield();
    if (!writer.writes() || commons.owner_died()) continue;
    std::shared_ptr<void> memory = plan_.call->call->output_owner.keep();
    log_warn("rank " + std::to_string(rank) +
             " was stopped while it wrote into the memory of rank " + std::to_string(plan_.rank) +
             (memory ? ", which is kept until rank " + std::to_string(rank) + " goes on or dies"
                     : ", and may go on later: do not use that memory again"));
    if (memory)
      KeptMemory::of_process().add(std::move(memory), [commons, writer] {
        return !commons.owner_died() && writer.writes();
      });
  }
}

}  // namespace hccl_like
