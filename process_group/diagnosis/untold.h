#pragma once
// Failures of calls of which the program has not been told: in stream order a wait returns before a
// call can fail, and there may be no later call that could raise the failure.
#include <cstdint>
#include <optional>

#include "core/base/error.h"

namespace hccl_like {

// For the process, whatever becomes of its groups. Any thread.

// A group is made; returns its number, which is larger than those of groups made before.
uint64_t number_of_new_group();
// A call of the group has failed, and nobody waited for it. The first one is kept, but not what the
// program knows already: that this group has failed, or that a rank was lost, which ends the calls
// of every group that the rank was in.
void note_untold(uint64_t group, const Error& error);
// The program is told that the group has failed: an exception is on its way to it.
void failure_told(uint64_t group, const Error& error);
// What is still to be told; the caller tells it.
std::optional<Error> take_untold();

}  // namespace hccl_like
