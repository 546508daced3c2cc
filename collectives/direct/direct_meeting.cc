// How the ranks of a direct call agree whose memory they use where it is.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "collectives/direct/direct_run.h"
#include "core/log.h"

namespace hccl_like {
namespace {

// What a rank moves in one step where no slot limits it. Of much memory more, if there are cores for helpers.
size_t step_bytes(size_t share, size_t ranks) {
  static const auto kCores = static_cast<size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return share >= 32 << 20 && kCores >= 2 * ranks ? 16 << 20 : 256 << 10;
}

}  // namespace

void DirectRun::show() {
  Board& board = *call_->board;
  Offer offer{.lane = lane_number_,
              .first_slot = first_slot_,
              .base = base_,
              .sums_all = sums_all_,
              .input_handles = input_handles_};
  const auto lay = [&](size_t at, std::span<const hcd_ipc_handle> handles) {
    std::memcpy(board.payload(call_->number, sizeof(Handles)) + at, handles.data(),
                handles.size_bytes());
  };
  if (const auto handles = own_handles(); !handles.empty() && !sums_all_) {
    offer.memory.input = name_input(handles);
    offer.input_offset = call_->shared_input == nullptr ? 0 : call_->shared_input->offset;
    lay(offsetof(Handles, inputs), handles);
  }
  if (const ExportedRange* output = call_->shared_output; output != nullptr && !sums_all_) {
    offer.memory.output =
        board.exports().name(*call_->device, call_->device_index, output->handle, last_output_);
    offer.output_offset = output->offset;
    lay(offsetof(Handles, output), {&output->handle, 1});
  }
  if (call_->chunks == Chunks::kPairs) {
    offer.largest = shape_.payload;
    tell_pairs();
  }
  // What will go through the lane for sure is there when the others see this line.
  if (roles_.puts() && (!shares_input() || sums_all_)) {
    // A reader need not wait for more than it can begin with; each of two has as many cells.
    const uint32_t first = exchanges_          ? PairCells::kCount / 2
                           : roles_.reducing() ? Lane::kSlots
                                               : 1;
    while (put_ < std::min(shape_.laps, first) && !awaits_cell()) put(put_++);
    lane_->put.store(base_ + put_, std::memory_order_relaxed);
  }
  std::memcpy(board.payload(call_->number, sizeof offer), &offer, sizeof offer);
  board.show(call_->number, call_->fingerprint, call_->bytes);
  // What needs nobody is done while the others come.
  if (!roles_.reducing()) keep_own(shape_.lap(0));
}

// What the allocations of this rank's input are called, together. Of several, each rank finds their own names in the lane.
uint64_t DirectRun::name_input(std::span<const hcd_ipc_handle> handles) {
  Exports& exports = call_->board->exports();
  if (input_handles_ == 0)
    return exports.name(*call_->device, call_->device_index, handles.front(), last_input_);
  auto& names = lane_->input_places.names;
  for (size_t i = 0; i < handles.size(); ++i)
    names[i] = exports.name(*call_->device, call_->device_index, handles[i]);
  return exports.name(std::span(names).first(handles.size()));
}

void DirectRun::show_no_lane(const BoardCall& call) {
  log_info([&] {
    return "no lane of shared memory is left for a call of " + std::to_string(call.bytes) +
           " bytes: it goes by messages";
  });
  const Offer offer{.lane = Offer::kNoLane};
  std::memcpy(call.board->payload(call.number, sizeof offer), &offer, sizeof offer);
  call.board->show(call.number, call.fingerprint, call.bytes);
}

void DirectRun::meet() {
  lacks_lane_ = !all_have_lanes();
  if (lacks_lane_) {
    // All ranks know it before they look into any lane, so nobody reads this one. A call that another thread goes on with comes here again.
    if (stage_ == Stage::kOff) return;
    take_back_cells();
    let_lane_go();
    call_->board->lanes().give_back(lane_number_);
    stage_ = Stage::kOff;
    return;
  }
  read_offers();
  const bool sane =
      std::ranges::all_of(peers_, [](const Peer& one) { return one.lane != nullptr; });
  // Whoever names a lane that does not exist is waited for until the call runs into its timeout.
  if (!sane || mismatch_) return;
  const bool any = std::ranges::any_of(
      offers_, [](const MemoryOffer& one) { return one.has_input() || one.has_output(); });
  if (!any) {
    if (!sums_all_ && roles_.sums_all()) settle(0, 0);
    stage_ = Stage::kMoving;
    return;
  }
  agreement_ = call_->known_memory->find(offers_);
  if (agreement_) {
    if (!holds_known()) map_known();
    // Told also if it is known: others may have forgotten.
    lane_->accepted.store(Lane::acceptance(base_) | agreement_->accepted,
                          std::memory_order_release);
    return settle(agreement_->accepted);
  }
  lane_->accepted.store(Lane::acceptance(base_) | map_all(), std::memory_order_release);
  call_->board->ring();
  stage_ = Stage::kAccepting;
}

bool DirectRun::all_have_lanes() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    uint32_t lane;
    std::memcpy(&lane,
                call_->board->payload(rank, call_->number, sizeof(Offer)) + offsetof(Offer, lane),
                sizeof lane);
    if (lane == Offer::kNoLane) return false;
  }
  return true;
}

void DirectRun::read_offers() {
  size_t largest = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    // Copied before it is looked at: its owner could change it meanwhile.
    Offer offer;
    std::memcpy(&offer, call_->board->payload(rank, call_->number, sizeof offer), sizeof offer);
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.lane = reinterpret_cast<const Lane*>(call_->board->lane(rank, offer.lane));
    peer.base = offer.base;
    peer.first_slot = offer.first_slot % slots_;
    peer.input_offset = offer.input_offset;
    peer.output_offset = offer.output_offset;
    offers_[static_cast<size_t>(rank)] = offer.memory;
    largest = std::max<size_t>(largest, offer.largest);
    sums_all_ = sums_all_ && offer.sums_all != 0;
    peer.input_handles = offer.input_handles;
    if (peer.lane == nullptr) continue;
    find(rank);
    if (peer.input_handles > 0) read_places(peer);
  }
  agree_about_laps(largest);
}

// Whether all that the group has agreed to use is still mapped here. It stays so until end().
bool DirectRun::holds_known() {
  held_.clear();
  const auto hold = [this](const KnownMemory::Mapping& known) {
    Mapping mapping = known.lock();
    if (!mapping) return false;
    call_->peer_memory->use(*mapping);
    held_.push_back(std::move(mapping));
    return true;
  };
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const size_t first = held_.size();
    for (const KnownMemory::Mapping& input : agreement_->inputs[rank])
      if (!hold(input)) return false;
    if (!place_input(peers_[rank], std::span(held_).subspan(first))) return false;
    const size_t output = held_.size();
    for (const KnownMemory::Mapping& one : agreement_->outputs[rank])
      if (!hold(one)) return false;
    if (held_.size() > output && !place_output(peers_[rank], held_[output])) return false;
  }
  return true;
}

// Maps again what the group has agreed to use: the other ranks do not ask a second time.
void DirectRun::map_known() {
  const uint64_t accepted = agreement_->accepted;
  if ((map_all() & accepted) == accepted) return remember(accepted);
  failure_ = Error{.code = ErrorCode::kSystem,
                   .message =
                       "memory of another rank that was mapped before cannot be mapped again, "
                       "the log at level info says why; if a limit is reached, raise it "
                       "(ulimit -n, vm.max_map_count)"};
}

// What this rank can map of what the others offer.
uint64_t DirectRun::map_all() {
  uint64_t mapped = Lane::kInputs | Lane::kOutputs;
  mappings_.assign(peers_.size(), {});
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    Handles handles;
    std::memcpy(&handles, call_->board->payload(rank, call_->number, sizeof handles),
                sizeof handles);
    mapped &= map(rank, handles);
  }
  return mapped;
}

uint64_t DirectRun::map(int rank, const Handles& handles) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  Mappings& mappings = mappings_[static_cast<size_t>(rank)];
  const MemoryOffer& offer = offers_[static_cast<size_t>(rank)];
  const auto open = [&](const hcd_ipc_handle& handle, uint64_t name) -> Mapping {
    if (call_->device == nullptr) return nullptr;
    auto opened = call_->peer_memory->open(*call_->device, call_->device_index,
                                           {.handle = handle, .name = name}, 0,
                                           call_->board->link(rank)->commons());
    if (opened.ok()) return std::move(opened).value().mapping;
    log_info([&] {
      return "the memory of rank " + std::to_string(rank) +
             " cannot be mapped: " + to_string(opened.error());
    });
    return nullptr;
  };
  uint64_t mapped = Lane::kInputs | Lane::kOutputs;
  if (offer.has_input()) {
    const size_t count = std::clamp<size_t>(peer.input_handles, 1, handles.inputs.size());
    const auto& names = peer.lane->input_places.names;
    for (size_t i = 0; i < count; ++i)
      mappings.input.push_back(
          open(handles.inputs[i], peer.input_handles == 0 ? offer.input : names[i]));
    if (std::ranges::count(mappings.input, nullptr) > 0 || !place_input(peer, mappings.input)) {
      mappings.input.clear();
      mapped &= ~Lane::kInputs;
    }
  }
  if (offer.has_output()) {
    mappings.output = open(handles.output, offer.output);
    if (mappings.output == nullptr || !place_output(peer, mappings.output)) {
      mappings.output = nullptr;
      mapped &= ~Lane::kOutputs;
    }
  }
  return mapped;
}

// All ranks have told whose memory they can map: what one of them can't is used by none.
void DirectRun::agree() {
  uint64_t accepted = Lane::kInputs | Lane::kOutputs;
  for (const Peer& peer : peers_) accepted &= peer.lane->accepted.load(std::memory_order_relaxed);
  remember(accepted);
  settle(accepted);
}

void DirectRun::remember(uint64_t accepted) {
  auto agreement = std::make_shared<KnownMemory::Agreement>();
  agreement->offers = offers_;
  agreement->accepted = accepted;
  for (const Mappings& one : mappings_) {
    const bool inputs = (accepted & Lane::kInputs) != 0, outputs = (accepted & Lane::kOutputs) != 0;
    agreement->inputs.emplace_back();
    if (inputs) agreement->inputs.back().assign(one.input.begin(), one.input.end());
    agreement->outputs.emplace_back();
    if (outputs && one.output) agreement->outputs.back().push_back(one.output);
  }
  agreement_ = agreement;
  call_->known_memory->remember(std::move(agreement));
}

void DirectRun::settle(uint64_t accepted) {
  RankSet inputs = 0, outputs = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const MemoryOffer& offer = offers_[static_cast<size_t>(rank)];
    if (offer.has_input() && (accepted & Lane::kInputs) != 0) inputs |= rank_bit(rank);
    if (offer.has_output() && (accepted & Lane::kOutputs) != 0) outputs |= rank_bit(rank);
  }
  settle(inputs, outputs);
}

void DirectRun::settle(RankSet inputs, RankSet outputs) {
  roles_ = Roles(call_->collective, rank_, ranks_, call_->root, inputs, outputs);
  keep_unread_cells();
  if (!roles_.staged()) {
    const size_t ranks = peers_.size();
    const size_t share = shape_.payload / (shape_.kind == Shape::Kind::kCut ? ranks : 1);
    shape_ = Shape::of(call_->collective, ranks_, shape_.payload,
                       step_bytes(share, ranks) * (shape_.kind == Shape::Kind::kWhole ? 1 : ranks));
  }
  stage_ = Stage::kMoving;
}

}  // namespace hccl_like
