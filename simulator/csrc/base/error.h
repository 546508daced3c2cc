#pragma once

#include <stdexcept>
#include <string>

namespace torch_sim {

// The simulated device, or the host that lends it its memory, has no room left.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The process was forked after the device had been used, so its threads and its order of work are
// the parent's.
struct ForkedAway : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// "what failed: the system's reason"
std::string system_error(const std::string& what);

}  // namespace torch_sim
