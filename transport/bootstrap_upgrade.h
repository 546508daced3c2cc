#pragma once
// What may still have to be agreed on between a greeted connection and a wire.
#include <memory>
#include <string>

#include "core/fd.h"
#include "transport/poller.h"
#include "transport/wire.h"

namespace hccl_like {

// Turns a greeted UNIX connection into a wire of shared memory. Nothing blocks; used by one thread at a time.
class Upgrade {
 public:
  virtual ~Upgrade() = default;
  // True when it is over, well or not.
  virtual bool step() = 0;
  // After step() said true: the wire, or null if it failed; then cause() tells why.
  virtual std::unique_ptr<Wire> take() = 0;
  virtual std::string cause() const = 0;
};

enum class Side { kConnector, kAcceptor };

// Null if this build has no shared memory transport.
std::unique_ptr<Upgrade> start_shm_upgrade(Fd socket, Side side, size_t ring_bytes, Poller& poller);
bool has_shm();

}  // namespace hccl_like
