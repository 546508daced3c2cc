#pragma once
// Two wires that are connected in memory, for tests and for simulating whole jobs in one thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "transport/wire/wire.h"

namespace hccl_like {

// Everything that happens follows from the seed and the order of the calls.
struct SimOptions {
  size_t capacity = 64 << 10;  // bytes under way per direction
  uint64_t seed = 1;
  // Largest number of bytes that a write takes, or a peek shows beyond what was wanted: each time a
  // random number up to this. 0: all there is.
  size_t chunk = 0;
  // Bytes arrive up to this many ticks after they were written, in order. Each call to either end
  // is a tick.
  uint64_t delay = 0;
  size_t alignment = 1;  // as it tells (wire.h)
};

// Both ends of a simulated connection. Destroying one end is a clean close for the other: it reads
// what was written, then fails.
struct SimPair {
  std::unique_ptr<Wire> a;
  std::unique_ptr<Wire> b;
  // Breaks the connection in both directions: what is under way is lost.
  std::function<void()> cut;
};
SimPair make_sim_pair(const SimOptions& options = {});

}  // namespace hccl_like
