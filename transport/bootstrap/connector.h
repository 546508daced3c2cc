#pragma once
// Reaches one peer: tries its addresses in parallel and keeps the first that turns out to be the
// peer.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/bootstrap/greeting.h"
#include "transport/network/address.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// One way to a peer: a TCP address, or its UNIX socket.
struct Way {
  std::string label;  // "10.0.0.5:4000", "shm"
  sockaddr_storage address{};
  socklen_t length = 0;
  std::function<void(int socket)> prepare;  // before it connects; may be empty
};
Way way_to(const Address& address, uint16_t port);
Way way_to_unix(const std::string& abstract_name);

// Used by one thread at a time; nothing blocks. What fails is tried again, with growing pauses, for
// as long as the owner keeps calling: a peer may be slow to come, or the network to heal.
class Connector {
 public:
  // `ways`, best first, are started a moment apart, so that the best wins if it works at all.
  // Identities and poller must outlive it. `rail`: which of the connections to the peer this is to
  // be.
  Connector(const Identity& self, const Identity& target, std::vector<Way> ways, Poller& poller,
            size_t rail = 0);
  ~Connector();

  // Goes on; true once connected.
  bool step();
  // After step() said true: the socket, ready for a wire.
  Fd take();
  // Before take(): what only the two ends know.
  Key session() const;
  // Whether one of the ways has turned out to be the peer, and was chosen.
  bool is_committed() const { return winner_ != nullptr; }
  // The label of the way that was taken.
  const std::string& taken() const { return taken_; }
  // True if every way was refused at least once for a reason that no backoff cures (nobody listens
  // there).
  bool hopeless() const;
  // True if hosts have answered at all of the addresses that nobody listens there.
  bool nobody_listens() const;
  // "10.0.0.5:4000: Connection refused (errno 111); [fd00::5]:4000: no answer".
  std::string report() const;
  // When step() has something to do although the poller reports nothing.
  Deadline next_timer() const;

 private:
  struct Attempt;
  void start(Attempt& attempt);
  void advance(Attempt& attempt);
  void lost(Attempt& attempt, std::string cause);
  void pick(Attempt& attempt);

  const Identity& self_;
  const Identity& target_;
  Poller& poller_;
  const size_t rail_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  Attempt* winner_ = nullptr;
  bool connected_ = false;
  std::string taken_;
};

}  // namespace hccl_like
