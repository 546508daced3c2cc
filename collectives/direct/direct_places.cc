// Direct calls whose inputs are several pieces, as lists of tensors are: each rank tells in its lane where what it gives to every other
// one lies, and reads that of the others where it is. Results of several pieces are made by the rank that owns them.
#include "collectives/direct/direct_run.h"

namespace hccl_like {
namespace {

// Where bytes [offset, offset + bytes) of a mapping are; null if it does not have them: what a peer says is not trusted.
std::byte* inside(const PeerMapping& mapping, uint64_t offset, uint64_t bytes) {
  const uint64_t size = mapping.size();
  return offset > size || bytes > size - offset ? nullptr : mapping.data() + offset;
}

// Adds what lies at `region`, a part of what is shared. False if there is no room left.
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

// What others need to find this rank's input in their own view of it; nothing where it is private.
std::span<const hcd_ipc_handle> DirectRun::own_handles() const {
  if (input_handles_ > 0) return call_->shared_regions->handles();
  if (call_->shared_input == nullptr) return {};
  return {&call_->shared_input->handle, 1};
}

// Of an input of several pieces: the handles that it takes. 0 if there is none, or if it has too many pieces to be told; then it goes
// through the lane.
uint32_t DirectRun::tell_places() {
  if (call_->shared_regions == nullptr || call_->shared_regions->regions().empty()) return 0;
  const auto regions = call_->shared_regions->regions();
  InputPlaces& told = lane_->input_places;
  InputPlaces::Range range;
  size_t at = 0;  // where the last piece was found: they come in order
  bool complete = true;
  for (int to = 0; to < ranks_; ++to) {
    // All ranks get the same, or each its own.
    if (shape_.kind == Shape::Kind::kChunks || to == 0) {
      range.begin = range.end;
      const auto chunk = static_cast<size_t>(input_chunk(to));
      call_->input->visit(chunk, 0, call_->input->bytes(chunk), [&](Region region) {
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
  return complete ? static_cast<uint32_t>(call_->shared_regions->handles().size()) : 0;
}

// Copied before they are looked at, as all that others write.
void DirectRun::read_places(Peer& peer) const {
  const InputPlaces& told = peer.lane->input_places;
  const InputPlaces::Range range = told.for_rank[static_cast<size_t>(rank_)];
  for (size_t i = range.begin; i < range.end && i < InputPlaces::kMost; ++i)
    peer.places.push_back({told.handles[i], told.places[i]});
}

// False if it does not lie in what is mapped. There is nothing to place where nothing is.
bool DirectRun::place_input(Peer& peer, std::span<const Mapping> mappings) {
  peer.input.clear();
  if (mappings.empty()) return true;
  if (peer.input_handles == 0) {
    std::byte* const data = inside(*mappings.front(), peer.input_offset, peer.gives);
    peer.input.add(data, peer.gives);
    return data != nullptr;
  }
  for (const Place& place : peer.places) {
    std::byte* const data = place.handle < mappings.size()
                                ? inside(*mappings[place.handle], place.at.offset, place.at.bytes)
                                : nullptr;
    if (data == nullptr) return false;
    peer.input.add(data, place.at.bytes);
  }
  return peer.input.bytes() >= peer.gives;
}

bool DirectRun::place_output(Peer& peer, const Mapping& mapping) {
  if (!mapping) return true;
  peer.output = inside(*mapping, peer.output_offset, peer.takes);
  return peer.output != nullptr;
}

}  // namespace hccl_like
