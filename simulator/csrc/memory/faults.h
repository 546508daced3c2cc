#pragma once
// Tells who touches device memory outside of the device's operations, where it is protected.
#include <cstdint>

#include "memory/address_space.h"

namespace torch_sim {

// Handles SIGSEGV and SIGBUS from now on: an access to memory of `space`, which stays for ever, is
// told on the standard error and in the file that TORCH_SIM_STRICT_REPORT names; the process then
// ends as it would have. The file also gets a line now, for whoever counts the processes that are
// watched. `seed` is what they are told, that of
// strict mode, 0 in discrete mode alone. Once.
void watch_faults(const AddressSpace& space, uint64_t seed);

// Puts the handlers on top of those that were installed since: whoever did that may not call ours.
// Those come after ours. Cheap enough for each operation. One thread at a time.
void stay_on_top();

}  // namespace torch_sim
