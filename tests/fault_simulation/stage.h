#pragma once
// The current job and rank, for the replaced parts of a process (replaced.cc).
#include "tests/fault_simulation/world.h"
#include "transport/link/link.h"

namespace hccl_like::fault_simulation {

// A Mesh or Poller that is made belongs to this process of this job.
struct Stage {
  World* world = nullptr;
  int rank = 0;
  LinkOptions options;
};
inline Stage stage;

// Until when the process whose turn it is sleeps; negative: it does not.
inline Time asleep_until = -1;

}  // namespace hccl_like::fault_simulation
