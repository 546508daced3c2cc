#pragma once
// What lies in one rank's area of shared memory: the rank that owns it writes, all ranks of the
// group read.
//
// The calls of a group are numbered alike on all ranks; call k uses line k modulo kCallSlots. A
// line may be written again once every rank has done with what it held, which each tells by its own
// count.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/same_host/commons.h"

namespace hccl_like {

// Two cache lines: processors fetch them in pairs.
inline constexpr size_t kBoardLine = 128;

struct BoardArea {
  static constexpr size_t kCallSlots = 8;
  static constexpr size_t kChildren = 256;
  static constexpr size_t kInlineBytes = kBoardLine - 32;
  static constexpr size_t kPayloadBytes = (Commons::kAreaBytes - 4096) / kCallSlots;

  struct CallSlot {
    alignas(kBoardLine) std::atomic<uint64_t> stamp{0};  // of the call; written last
    uint64_t fingerprint = 0;                            // what the rank calls
    uint64_t bytes = 0;  // of its payload, which is in the line if it fits
    uint64_t done = 0;   // the rank's count when it showed this: nobody has to ask for it then
    std::array<std::byte, kInlineBytes> payload{};
  };

  // All calls up to this stamp are done with, on this rank: it needs nobody's lines of them. Before
  // the board of this lease is made: the name of the lease.
  alignas(kBoardLine) std::atomic<uint64_t> done{0};
  static constexpr uint64_t kOver = 1;  // its board is gone; whose it was does not matter
  // Whether this rank sees all others (board.cc), of a board that is not a part of another.
  std::atomic<uint64_t> verdict{0};
  uint32_t leases = 0;  // how often the area was taken; for its owner only
  std::array<CallSlot, kCallSlots> lines{};
  // By number of the split: this rank's area of the child. 0: not there yet; 1: there is none; else
  // the name of the lease.
  std::array<std::atomic<uint64_t>, kChildren> children{};
  alignas(4096) std::array<std::array<std::byte, kPayloadBytes>, kCallSlots> payloads;
};

// What other ranks are told of an area: which one it is, and which of its leases. An area that has
// been taken again has another name. At least kAreas, so neither 0 nor one of the small values in
// BoardArea.
struct LeasedArea {
  static constexpr uint32_t kLeases = UINT32_MAX / Commons::kAreas;
  static constexpr uint32_t name(uint32_t area, uint32_t leases) {
    return (1 + leases % kLeases) * Commons::kAreas + area;
  }
  static constexpr uint32_t area(uint32_t name) { return name % Commons::kAreas; }
};
static_assert(LeasedArea::name(Commons::kAreas - 1, LeasedArea::kLeases - 1) == UINT32_MAX);

static_assert(sizeof(BoardArea::CallSlot) == kBoardLine);
static_assert(sizeof(BoardArea) == Commons::kAreaBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace hccl_like
