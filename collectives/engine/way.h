#pragma once
// How a call goes: over the board, straight between the ranks' memory, or by messages.
#include <cstdint>

#include "collectives/call/call.h"

namespace hccl_like {

// What decides beside the call. The same on all ranks of a group.
struct WayOptions {
  bool board = false;   // the ranks meet on one
  bool forced = false;  // the user names the collective's algorithm
  bool direct = true;   // Config::direct
};

Way way_of(const Call& call, int ranks, Chunks chunks, const WayOptions& options);
// The same for a call of `bytes` in all chunks together, which are equally large.
Way way_of(Collective collective, uint64_t bytes, int ranks, const WayOptions& options);

}  // namespace hccl_like
