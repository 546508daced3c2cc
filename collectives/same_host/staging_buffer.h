#pragma once
// A staging buffer in shared memory: how far its owner is with a call, and the payload that passes
// by in blocks.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/board/area.h"
#include "collectives/call/shared_regions.h"
#include "collectives/same_host/known_memory.h"
#include "collectives/same_host/roles.h"
#include "transport/same_host/commons.h"

namespace hccl_like {

// What a rank tells another about its own side of a call, in bytes.
struct ChunkSizes {
  uint64_t gives = 0, takes = 0;
  uint64_t input_at = 0, output_at = 0;  // where that lies in the rank's input and output
};

// Where a rank's input lies that is several pieces: what it gives to each rank, in order. In bytes.
struct InputPlaces {
  static constexpr size_t kMost = 256;
  struct Range {
    uint16_t begin = 0, end = 0;
  };
  struct Place {
    uint64_t offset = 0, bytes = 0;
  };

  std::array<Range, kMostLargeCallRanks> for_rank;  // of places
  std::array<uint8_t, kMost> handles;  // of each place, in which of the handles it lies
  std::array<Place, kMost> places;
  std::array<uint64_t, SharedRegions::kMostHandles> names;  // of the handles (Exports)
};

// The rank that owns it writes, the others read. The counters only grow, also from call to call, so
// that what an earlier call left is never taken for progress of this one: block k of a call that
// began at `base` is over when a counter is larger than base + k.
struct StagingBuffer {
  static constexpr uint32_t kSlots = 4;
  static constexpr size_t kPayloadBytes = Commons::kStagingBytes - 8192;
  static constexpr size_t kSlotBytes = kPayloadBytes / kSlots;  // at most: slots lie close together

  using Counter = std::atomic<uint64_t>;

  alignas(kBoardLine) Counter put{0};     // blocks whose input is in the slots
  alignas(kBoardLine) Counter worked{0};  // blocks of which this rank has made its part
  // Blocks of which it needs nobody's slot and nobody's memory any more.
  alignas(kBoardLine) Counter finished{0};
  // Whose memory it could map: base << 8 | 0x80 | kInputs | kOutputs.
  alignas(kBoardLine) Counter accepted{0};
  alignas(kBoardLine) Counter writing{0};  // base + 1 while it writes into a peer's memory
  uint64_t next_base = 0;                  // these two for the owner alone
  uint32_t next_slot = 0;
  // Of a call whose sizes each pair of ranks knows (Chunks::kPairs), by the other rank. Written
  // before the line is shown.
  alignas(kBoardLine) std::array<ChunkSizes, kMostLargeCallRanks> sizes;
  InputPlaces input_places;  // of a call whose Offer says so; written before the line is shown, too
  alignas(4096) std::array<std::byte, kPayloadBytes> payload;

  static constexpr uint64_t kInputs = 1;
  static constexpr uint64_t kOutputs = 2;
  static constexpr uint64_t acceptance(uint64_t base) { return base << 8 | 0x80; }
};
static_assert(sizeof(StagingBuffer) == Commons::kStagingBytes);

// What a rank shows of a large call on its board, in the line itself.
struct Offer {
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t staging = 0;  // kNone: no buffer was free, so all ranks make the call by messages
  uint32_t first_slot = 0;
  uint64_t base = 0;
  MemoryOffer memory;
  uint64_t input_offset = 0, output_offset = 0;  // in what the handles name
  uint64_t largest = 0;                          // of the chunks that this rank knows
  uint32_t sums_all = 0;                         // not 0: it wanted that every rank sums all of it
  uint32_t input_handles =
      0;  // of an input in several pieces, which the staging buffer tells; 0: in one
};
static_assert(sizeof(Offer) <= BoardArea::kInlineBytes);

// And beside the line, for ranks that do not know its memory yet.
struct Handles {
  hcd_ipc_handle output{};
  std::array<hcd_ipc_handle, SharedRegions::kMostHandles> inputs{};
};
static_assert(sizeof(Handles) > BoardArea::kInlineBytes &&
              sizeof(Handles) <= BoardArea::kPayloadBytes);

}  // namespace hccl_like
