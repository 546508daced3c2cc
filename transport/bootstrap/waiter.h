#pragma once
// The other end of a Dialer where it tries a Transport: waits on all of them at once, since the
// choice is the dialer's.
#include <list>
#include <memory>
#include <string>

#include "transport/bootstrap/dialer.h"
#include "transport/bootstrap/wire_greeting.h"

namespace hccl_like {

// Peers that come over shared memory or TCP come through the Acceptor instead. Used by one thread
// at a time; nothing blocks.
class Waiter {
 public:
  // All must outlive it.
  Waiter(const LocalEnd& local, const ProcessRecord& self, const ProcessRecord& peer,
         Poller& poller);

  // Goes on; true once there is a wire, to be taken once.
  bool step();
  Dialed take() { return std::move(dialed_); }
  // Whether there is anything to wait on.
  bool waits() const { return !waiting_.empty(); }
  // What failed, on one line; empty if nothing did.
  const std::string& report() const { return report_; }

 private:
  struct Waiting {
    Transport* transport;
    std::unique_ptr<WireGreeting> greeting;
  };
  void failed(const Transport& transport, const std::string& why);

  const LocalEnd& local_;
  const ProcessRecord& self_;
  const ProcessRecord& peer_;
  const Identity target_;
  Poller& poller_;
  std::list<Waiting> waiting_;
  std::string report_;
  Dialed dialed_;
};

}  // namespace hccl_like
