#pragma once
// Failures not reported to the program yet. In stream order wait() returns before a call can fail,
// and no later call may follow to raise the failure.
#include <cstdint>
#include <optional>

#include "core/base/error.h"

namespace hccl_like {

// Process-wide, independent of group lifetimes. Thread-safe.

// Returns the number of a new group. Numbers increase.
uint64_t number_of_new_group();
// Keeps the first failure that no wait() saw, unless the program knows it: a failure of the same
// group, or the loss of a rank when the program was told of one after this group was made.
void note_untold(uint64_t group, const Error& error);
// Call when an exception tells the program about a failure of the group.
void failure_told(uint64_t group, const Error& error);
// Takes the pending failure. The caller must report it.
std::optional<Error> take_untold();

}  // namespace hccl_like
