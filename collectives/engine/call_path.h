#pragma once
// Chooses the path of a call: the board, direct memory access, or messages.
#include <cstdint>

#include "collectives/call/call.h"

namespace hccl_like {

// Further inputs of the choice; equal on all ranks.
struct CallPathOptions {
  bool board = false;        // the group has one
  bool maps_memory = false;  // ranks of one host may map each other's memory
  bool forced = false;       // the user names the collective's algorithm
  bool direct = true;        // Config::direct
  bool deterministic = false;
  bool own = false;  // the named algorithm is the user's, so streams take its schedule
};

CallPath call_path(const Call& call, int ranks, Chunks chunks, const CallPathOptions& options);
// The same for a call of `bytes` in all chunks together, which have equal sizes.
CallPath call_path(Collective collective, uint64_t bytes, int ranks,
                   const CallPathOptions& options);

}  // namespace hccl_like
