#pragma once
// Waits for a peer's Dialer on all `Transport`s at once, since the dialer chooses.
#include <list>
#include <memory>
#include <string>

#include "transport/bootstrap/dialer.h"
#include "transport/bootstrap/wire_greeting.h"

namespace hccl_like {

// Peers over shm or tcp use the Acceptor instead. Used by one thread at a time; nothing blocks.
class Waiter {
 public:
  // All arguments must outlive this object.
  Waiter(const LocalEnd& local, const ProcessRecord& self, const ProcessRecord& peer,
         Poller& poller);

  // Makes progress; true once a wire is ready. Take the wire once.
  bool step();
  Dialed take() { return std::move(dialed_); }
  bool waits() const { return !waiting_.empty(); }
  // The failures, on one line; empty if none.
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
