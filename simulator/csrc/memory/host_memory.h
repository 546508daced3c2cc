#pragma once

#include <cstddef>

namespace torch_sim {

// The host's memory in bytes, or the limit of this process' control group where that is lower.
size_t total_host_memory();

// How much of it could be taken now without swapping or being killed.
size_t available_host_memory();

}  // namespace torch_sim
