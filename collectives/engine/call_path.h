#pragma once
// How a call goes: over the board, straight between the ranks' memory, or by messages.
#include <cstdint>

#include "collectives/call/call.h"

namespace hccl_like {

// What decides beside the call. The same on all ranks of a group.
struct CallPathOptions {
  bool board = false;   // the ranks meet on one
  bool forced = false;  // the user names the collective's algorithm
  bool direct = true;   // Config::direct
};

CallPath call_path(const Call& call, int ranks, Chunks chunks, const CallPathOptions& options);
// The same for a call of `bytes` in all chunks together, which are equally large.
CallPath call_path(Collective collective, uint64_t bytes, int ranks,
                   const CallPathOptions& options);

}  // namespace hccl_like
