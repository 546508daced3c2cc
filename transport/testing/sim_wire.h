#pragma once
// Two wires connected in memory, for tests and for simulating whole jobs in one thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "transport/wire/wire.h"

namespace hccl_like {

// Deterministic: seed and order of calls determine all results.
struct SimOptions {
  size_t capacity = 64 << 10;  // bytes in flight per direction
  uint64_t seed = 1;
  // Limit of a random number of bytes per write, and per peek beyond the wanted bytes; 0: none.
  size_t chunk = 0;
  // Maximum delay of arriving bytes in ticks, in order. Each call to either end is a tick.
  uint64_t delay = 0;
  size_t alignment = 1;  // reported alignment (wire.h)
};

// Both ends of a simulated connection. Destroying one end closes it: the other end reads the
// remaining bytes, then fails.
struct SimPair {
  std::unique_ptr<Wire> a;
  std::unique_ptr<Wire> b;
  // Breaks the connection in both directions; bytes in flight are lost.
  std::function<void()> cut;
};
SimPair make_sim_pair(const SimOptions& options = {});

}  // namespace hccl_like
