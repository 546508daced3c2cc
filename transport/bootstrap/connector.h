#pragma once
// Connects to one peer: tries its addresses in parallel and keeps the first that authenticates.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bootstrap/greeting.h"
#include "transport/network/address.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// One address of a peer: TCP, or its UNIX socket.
struct Way {
  std::string label;  // "10.0.0.5:4000", "shm"
  sockaddr_storage address{};
  socklen_t length = 0;
  std::function<void(int socket)> prepare;  // called before connect(); may be empty
};
Way way_to(const Address& address, uint16_t port);
Way way_to_unix(const std::string& abstract_name);

// Used by one thread at a time; nothing blocks. Retries failed attempts with growing backoff for as
// long as the owner calls step().
class Connector {
 public:
  static constexpr std::chrono::milliseconds kStagger{25};
  // Starts the `ways`, best first, `stagger` apart or when one before fails, so that the best wins
  // if it works. Identities and poller must outlive this object. `rail`: index of this connection
  // among those to the peer.
  Connector(const Identity& self, const Identity& target, std::vector<Way> ways, Poller& poller,
            size_t rail = 0, std::chrono::milliseconds stagger = kStagger);
  ~Connector();

  bool step();
  Fd take();
  // Before take(): the session key, known to the two ends only.
  Key session() const;
  // Whether one way has authenticated and was chosen.
  bool is_committed() const { return winner_ != nullptr; }
  const std::string& taken() const { return taken_; }
  // True if every way failed at least once with an error that retries do not cure (no listener).
  bool hopeless() const;
  // True if every address answered with "connection refused".
  bool nobody_listens() const;
  // Whether this address refuses connections: "10.0.0.5", "[fd00::5]".
  bool is_refused_by(std::string_view address) const;
  // Whether a connection to any address exists, greeted or not: its host and listener are there.
  bool is_answered() const;
  // "10.0.0.5:4000: Connection refused (errno 111) (the host is up, ...); [fd00::5]:4000: no
  // answer". Of an address without an answer for a second it tells whether the host answers at
  // another port.
  std::string report() const;
  // The next time at which step() must run without an event.
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
