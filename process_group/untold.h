#pragma once
// Failures of calls of which the program has not been told: in stream order a wait returns before a call can fail, and there may be
// no later call that could raise the failure.
#include <cstdint>
#include <optional>

#include "core/error.h"

namespace hccl_like {

// For the process, whatever becomes of its groups. Any thread.

// A group is made; returns its number, which is larger than those of groups made before.
uint64_t number_of_new_group();
// A call of the group has failed, and nobody waited for it. Kept if it is the first, unless the program has been told of a failure since
// the group was made: what fails in groups that were there has one cause, or comes after it.
void note_untold(uint64_t group, const Error& error);
// The program is told of a failure: an exception is on its way to it.
void failure_told();
// What is still to be told; the caller tells it.
std::optional<Error> take_untold();

}  // namespace hccl_like
