#pragma once
// A staging buffer in shared memory: its owner's progress counters and payload slots.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/board/area.h"
#include "collectives/call/shared_regions.h"
#include "collectives/same_host/known_memory.h"
#include "collectives/same_host/roles.h"
#include "core/memory/write_mode.h"
#include "transport/same_host/commons.h"

namespace hccl_like {

// One rank's side of a call as published to another, in bytes.
struct ChunkSizes {
  uint64_t gives = 0, takes = 0;
  uint64_t input_at = 0, output_at = 0;  // offsets in the rank's input and output
};

// Places of an input in several regions, in the order of the ranks that get them. In bytes.
struct InputPlaces {
  static constexpr size_t kMost = 256;
  struct Range {
    uint16_t begin = 0, end = 0;
  };
  struct Place {
    uint64_t offset = 0, bytes = 0;
  };

  std::array<Range, kMostLargeCallRanks> for_rank;  // of places
  std::array<uint8_t, kMost> handles;               // index of the handle of each place
  std::array<Place, kMost> places;
  std::array<uint64_t, SharedRegions::kMostHandles> names;  // of the handles (Exports)
};

// The owner writes, the other ranks read. Counters only grow, also across calls, so that an old
// value never counts as progress: block k of a call with base `base` is done if a counter is larger
// than base + k.
struct StagingBuffer {
  static constexpr uint32_t kSlots = 4;
  static constexpr size_t kPayloadBytes = Commons::kStagingBytes - 8192;
  static constexpr size_t kSlotBytes = kPayloadBytes / kSlots;  // upper limit; slots are adjacent

  using Counter = std::atomic<uint64_t>;

  alignas(kBoardLine) Counter put{0};     // blocks with input in the slots
  alignas(kBoardLine) Counter worked{0};  // blocks of which this rank has done its part
  // Blocks for which this rank needs no peer's slot or memory any more.
  alignas(kBoardLine) Counter finished{0};
  // Memory that this rank could map: base << 8 | 0x80 | kInputs | kOutputs.
  alignas(kBoardLine) Counter accepted{0};
  alignas(kBoardLine) Counter writing{0};  // base + 1 while it writes into a peer's memory
  uint64_t next_base = 0;                  // this and the next: owner only
  uint32_t next_slot = 0;
  WriteMode write_mode;
  // By peer, for Chunks::kPairs. Written before the slot is published.
  alignas(kBoardLine) std::array<ChunkSizes, kMostLargeCallRanks> sizes;
  InputPlaces input_places;  // if the Offer says so; also written before the slot is published
  alignas(4096) std::array<std::byte, kPayloadBytes> payload;

  static constexpr uint64_t kInputs = 1;
  static constexpr uint64_t kOutputs = 2;
  static constexpr uint64_t acceptance(uint64_t base) { return base << 8 | 0x80; }
};
static_assert(sizeof(StagingBuffer) == Commons::kStagingBytes);

// A rank's offer for a large call, inline in its call slot.
struct Offer {
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t staging = 0;  // kNone: no buffer was free, so all ranks use messages
  uint32_t first_slot = 0;
  uint64_t base = 0;
  MemoryOffer memory;
  uint64_t input_offset = 0, output_offset = 0;  // in the handles' memory
  uint64_t largest = 0;                          // largest chunk that this rank knows
  uint32_t sums_all = 0;                         // nonzero: prefers that every rank sums all
  // Of an input in several regions, listed in the staging buffer; 0: one region.
  uint32_t input_handles = 0;
};
static_assert(sizeof(Offer) <= BoardArea::kInlineBytes);

// Payload beside the slot, for ranks that do not know this rank's memory yet.
struct Handles {
  hcd_ipc_handle output{};
  std::array<hcd_ipc_handle, SharedRegions::kMostHandles> inputs{};
};
static_assert(sizeof(Handles) > BoardArea::kInlineBytes &&
              sizeof(Handles) <= BoardArea::kPayloadBytes);

}  // namespace hccl_like
