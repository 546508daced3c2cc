#include "collectives/same_host/memory_agreement.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>

#include "core/base/log.h"

namespace hccl_like {
namespace {

constexpr uint64_t kInputs = StagingBuffer::kInputs, kOutputs = StagingBuffer::kOutputs;

// Address of bytes [offset, offset + bytes); null outside the mapping, as peers are not trusted.
std::byte* inside(const PeerMapping& mapping, uint64_t offset, uint64_t bytes) {
  const uint64_t size = mapping.size();
  return offset > size || bytes > size - offset ? nullptr : mapping.data() + offset;
}

// Saturating sum, for offsets from peers.
uint64_t add(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max()
                                                      : a + b;
}

// Adds the place of `region`, a part of `shared`. False if there is no room.
bool add_place(InputPlaces& told, InputPlaces::Range& range, const SharedRegions::Shared& shared,
               Region region) {
  const uint64_t offset = shared.offset + static_cast<size_t>(region.data - shared.region.data);
  if (range.end > range.begin) {
    InputPlaces::Place& last = told.places[range.end - 1];
    if (told.handles[range.end - 1] == shared.handle && last.offset + last.bytes == offset) {
      last.bytes += region.bytes;
      return true;
    }
  }
  if (range.end == InputPlaces::kMost) return false;
  told.handles[range.end] = static_cast<uint8_t>(shared.handle);
  told.places[range.end++] = {offset, region.bytes};
  return true;
}

}  // namespace

void MemoryAgreement::begin(BlockPlan& plan) {
  plan_ = &plan;
  told_.assign(static_cast<size_t>(plan.ranks), {});
  offers_.assign(static_cast<size_t>(plan.ranks), {});
  failure_.reset();
  input_handles_ = tell_places();
}

void MemoryAgreement::end() {
  mappings_.clear();
  held_.clear();
  agreement_.reset();
}

std::span<const hcd_ipc_handle> MemoryAgreement::own_handles() const {
  if (input_handles_ > 0) return call().shared_regions->handles();
  if (!call().shared_input) return {};
  return {&call().shared_input->handle, 1};
}

// Publishes the places of an input in several regions, such as a tensor list. Returns the number of
// its handles; 0 if there are no regions or too many, which are then staged.
uint32_t MemoryAgreement::tell_places() {
  if (!call().shared_regions || call().shared_regions->regions().empty()) return 0;
  const auto regions = call().shared_regions->regions();
  const Layout& input = *plan_->call->input;
  InputPlaces& told = plan_->staging->input_places;
  InputPlaces::Range range;
  size_t at = 0;  // index of the last region found, as regions come in order
  bool complete = true;
  for (int to = 0; to < plan_->ranks; ++to) {
    // All ranks get the same data, or each its own chunk.
    if (plan_->shape.kind == Shape::Kind::kChunks || to == 0) {
      range.begin = range.end;
      const size_t chunk = plan_->input_chunk(to);
      input.visit(chunk, 0, input.bytes(chunk), [&](Region region) {
        const auto holds = [&](const SharedRegions::Shared& one) {
          return region.data >= one.region.data &&
                 region.data + region.bytes <= one.region.data + one.region.bytes;
        };
        size_t tries = regions.size();
        while (tries > 0 && !holds(regions[at])) at = (at + 1) % regions.size(), --tries;
        complete = complete && tries > 0 && add_place(told, range, regions[at], region);
      });
    }
    told.for_rank[static_cast<size_t>(to)] = range;
  }
  return complete ? static_cast<uint32_t>(call().shared_regions->handles().size()) : 0;
}

void MemoryAgreement::offer(Offer& offer) {
  Board& board = *plan_->call->board;
  offer.input_handles = input_handles_;
  const auto lay = [&](size_t at, std::span<const hcd_ipc_handle> handles) {
    std::memcpy(board.payload(plan_->call->number, sizeof(Handles)) + at, handles.data(),
                handles.size_bytes());
  };
  if (const auto handles = own_handles(); !handles.empty()) {
    offer.memory.input = name_input(handles);
    offer.input_offset = call().shared_input ? call().shared_input->offset : 0;
    lay(offsetof(Handles, inputs), handles);
  }
  if (const auto& output = call().shared_output) {
    offer.memory.output =
        board.exports().name(*call().device, call().device_index, output->handle, last_output_);
    offer.output_offset = output->offset;
    lay(offsetof(Handles, output), {&output->handle, 1});
  }
}

// One name for all allocations of the input; peers find single names in the staging buffer.
uint64_t MemoryAgreement::name_input(std::span<const hcd_ipc_handle> handles) {
  Exports& exports = plan_->call->board->exports();
  if (input_handles_ == 0)
    return exports.name(*call().device, call().device_index, handles.front(), last_input_);
  auto& names = plan_->staging->input_places.names;
  for (size_t i = 0; i < handles.size(); ++i)
    names[i] = exports.name(*call().device, call().device_index, handles[i]);
  return exports.name(std::span(names).first(handles.size()));
}

// Copied before any check, like all data from peers.
void MemoryAgreement::read(int rank, const Offer& offer, const ChunkSizes& sizes) {
  Told& told = told_[static_cast<size_t>(rank)];
  offers_[static_cast<size_t>(rank)] = offer.memory;
  told.input_offset = add(offer.input_offset, sizes.input_at);
  told.output_offset = add(offer.output_offset, sizes.output_at);
  told.input_handles = offer.input_handles;
  if (told.input_handles == 0) return;
  const InputPlaces& places = plan_->peer(rank).staging->input_places;
  const InputPlaces::Range range = places.for_rank[static_cast<size_t>(plan_->rank)];
  for (size_t i = range.begin; i < range.end && i < InputPlaces::kMost; ++i)
    told.places.push_back({places.handles[i], places.places[i]});
}

bool MemoryAgreement::any() const {
  return std::ranges::any_of(
      offers_, [](const MemoryOffer& one) { return one.has_input() || one.has_output(); });
}

std::optional<uint64_t> MemoryAgreement::known() {
  agreement_ = plan_->call->resources->known_memory->find(offers_);
  if (!agreement_) return std::nullopt;
  const uint64_t accepted = agreement_->accepted;
  if (holds_known(*agreement_)) return accepted;
  // The other ranks do not map a second time.
  if ((map_all() & accepted) == accepted) {
    conclude(accepted);
    return accepted;
  }
  failure_ = Error{.code = ErrorCode::kSystem,
                   .message =
                       "memory of another rank that was mapped before cannot be mapped again, "
                       "the log at level info says why; if a limit is reached, raise it "
                       "(ulimit -n, vm.max_map_count)"};
  return accepted;
}

// Whether all agreed memory is still mapped here; held_ keeps it mapped until end().
bool MemoryAgreement::holds_known(const KnownMemory::Agreement& agreement) {
  held_.clear();
  const auto hold = [this](const KnownMemory::Mapping& known) {
    Mapping mapping = known.lock();
    if (!mapping) return false;
    plan_->call->resources->peer_memory->use(*mapping);
    held_.push_back(std::move(mapping));
    return true;
  };
  for (int rank = 0; rank < plan_->ranks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    const size_t first = held_.size();
    if (!std::ranges::all_of(agreement.inputs[at], hold)) return false;
    if (!place_input(rank, std::span(held_).subspan(first))) return false;
    const size_t output = held_.size();
    if (!std::ranges::all_of(agreement.outputs[at], hold)) return false;
    if (held_.size() > output && !place_output(rank, held_[output])) return false;
  }
  return true;
}

uint64_t MemoryAgreement::map_all() {
  uint64_t mapped = kInputs | kOutputs;
  mappings_.assign(told_.size(), {});
  for (int rank = 0; rank < plan_->ranks; ++rank)
    if (rank != plan_->rank) mapped &= map(rank);
  return mapped;
}

uint64_t MemoryAgreement::map(int rank) {
  const BoardCall& on_board = *plan_->call;
  const Told& told = told_[static_cast<size_t>(rank)];
  const MemoryOffer& offer = offers_[static_cast<size_t>(rank)];
  Mappings& mappings = mappings_[static_cast<size_t>(rank)];
  Handles handles;
  std::memcpy(&handles, on_board.board->payload(rank, on_board.number, sizeof handles),
              sizeof handles);
  uint64_t mapped = kInputs | kOutputs;
  if (offer.has_input()) {
    const size_t count = std::clamp<size_t>(told.input_handles, 1, handles.inputs.size());
    const auto& names = plan_->peer(rank).staging->input_places.names;
    for (size_t i = 0; i < count; ++i)
      mappings.input.push_back(
          open(rank, handles.inputs[i], told.input_handles == 0 ? offer.input : names[i]));
    if (std::ranges::count(mappings.input, nullptr) > 0 || !place_input(rank, mappings.input)) {
      mappings.input.clear();
      mapped &= ~kInputs;
    }
  }
  if (offer.has_output()) {
    mappings.output = open(rank, handles.output, offer.output);
    if (mappings.output == nullptr || !place_output(rank, mappings.output)) {
      mappings.output = nullptr;
      mapped &= ~kOutputs;
    }
  }
  return mapped;
}

MemoryAgreement::Mapping MemoryAgreement::open(int rank, const hcd_ipc_handle& handle,
                                               uint64_t name) {
  if (call().device == nullptr) return nullptr;
  auto opened = plan_->call->resources->peer_memory->open(
      *call().device, call().device_index, {.handle = handle, .name = name}, 0,
      plan_->call->board->link(rank)->commons());
  if (opened.ok()) return std::move(opened).value().mapping;
  log_info([&] {
    return "the memory of rank " + std::to_string(rank) +
           " cannot be mapped: " + to_string(opened.error());
  });
  return nullptr;
}

// False if the input is outside the mappings. True if nothing is mapped.
bool MemoryAgreement::place_input(int rank, std::span<const Mapping> mappings) {
  const Told& told = told_[static_cast<size_t>(rank)];
  BlockPlan::Peer& peer = plan_->peers[static_cast<size_t>(rank)];
  peer.input.clear();
  if (mappings.empty()) return true;
  if (told.input_handles == 0) {
    std::byte* const data = inside(*mappings.front(), told.input_offset, peer.gives);
    peer.input.add(data, peer.gives);
    return data != nullptr;
  }
  for (const Place& place : told.places) {
    std::byte* const data = place.handle < mappings.size()
                                ? inside(*mappings[place.handle], place.at.offset, place.at.bytes)
                                : nullptr;
    if (data == nullptr) return false;
    peer.input.add(data, place.at.bytes);
  }
  return peer.input.bytes() >= peer.gives;
}

bool MemoryAgreement::place_output(int rank, const Mapping& mapping) {
  BlockPlan::Peer& peer = plan_->peers[static_cast<size_t>(rank)];
  peer.output = inside(*mapping, told_[static_cast<size_t>(rank)].output_offset, peer.takes);
  return peer.output != nullptr;
}

void MemoryAgreement::conclude(uint64_t accepted) {
  auto agreement = std::make_shared<KnownMemory::Agreement>();
  agreement->offers = offers_;
  agreement->accepted = accepted;
  for (const Mappings& one : mappings_) {
    agreement->inputs.emplace_back();
    if ((accepted & kInputs) != 0)
      agreement->inputs.back().assign(one.input.begin(), one.input.end());
    agreement->outputs.emplace_back();
    if ((accepted & kOutputs) != 0 && one.output) agreement->outputs.back().push_back(one.output);
  }
  agreement_ = agreement;
  plan_->call->resources->known_memory->remember(std::move(agreement));
}

void MemoryAgreement::settle(uint64_t accepted) {
  RankSet inputs = 0, outputs = 0;
  for (int rank = 0; rank < plan_->ranks; ++rank) {
    const MemoryOffer& offer = offers_[static_cast<size_t>(rank)];
    if (offer.has_input() && (accepted & kInputs) != 0) inputs |= rank_bit(rank);
    if (offer.has_output() && (accepted & kOutputs) != 0) outputs |= rank_bit(rank);
  }
  plan_->settle(inputs, outputs);
}

}  // namespace hccl_like
