#pragma once
// Layout of one rank's shared-memory area: the owner writes, all ranks of the group read.
//
// Call k of the group uses slot k modulo kCallSlots. A slot is reusable once the `done` counter of
// every rank has passed the slot's previous call.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/same_host/commons.h"

namespace hccl_like {

// Two cache lines: processors prefetch them in pairs.
inline constexpr size_t kBoardLine = 128;

struct BoardArea {
  static constexpr size_t kCallSlots = 8;
  static constexpr size_t kChildren = 256;
  static constexpr size_t kInlineBytes = kBoardLine - 32;
  static constexpr size_t kPayloadBytes = (Commons::kAreaBytes - 4096) / kCallSlots;

  struct CallSlot {
    alignas(kBoardLine) std::atomic<uint64_t> stamp{0};  // of the call; written last
    uint64_t fingerprint = 0;
    uint64_t bytes = 0;  // payload size; the payload is inline if it fits
    uint64_t done = 0;   // copy of BoardArea::done, which spares peers a read of that line
    std::array<std::byte, kInlineBytes> payload{};
  };

  // Stamp up to which this rank has finished all calls, so needs no slot of them. Before the board
  // of this lease is made: the lease name.
  alignas(kBoardLine) std::atomic<uint64_t> done{0};
  static constexpr uint64_t kOver = 1;  // the owner's board is gone
  // Whether this rank maps all others (board.cc). Not used for subgroups.
  std::atomic<uint64_t> verdict{0};
  uint32_t leases = 0;  // number of times taken; owner only
  std::array<CallSlot, kCallSlots> lines{};
  // By split number: this rank's area of the subgroup. 0: not known; 1: none; else its lease name.
  std::array<std::atomic<uint64_t>, kChildren> children{};
  alignas(4096) std::array<std::array<std::byte, kPayloadBytes>, kCallSlots> payloads;
};

// Name of one lease of an area; a reused area gets another name. Names are at least kAreas, so
// distinct from 0 and the small constants in BoardArea.
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
