#pragma once
// Accepts connections of peers; rejects connections that do not authenticate.
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "transport/bootstrap/greeting.h"
#include "transport/bootstrap/listeners.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// An authenticated connection that both ends have agreed to keep.
struct Accepted {
  Fd socket;
  std::string peer_id;
  size_t rail = 0;         // index among the connections to this peer
  std::string from;        // "10.0.0.5:51234"
  bool same_host = false;  // came over the UNIX socket
  Key session;             // known to the two ends only
};

// Unauthenticated connections cost at most kMaxStrangers descriptors for kTimeout each, and 256
// bytes read per connection. Used by one thread at a time; nothing blocks.
class Acceptor final : private Pollable {
 public:
  static constexpr size_t kMaxStrangers = 64;
  static constexpr std::chrono::milliseconds kTimeout{1000};
  // Timeout of authenticated connections without a commit: the peer's host may have died.
  static constexpr std::chrono::milliseconds kLongTimeout{60'000};

  // `self` and `poller` must outlive this object.
  Acceptor(const Identity& self, Poller& poller);
  ~Acceptor() override;

  Listeners& listeners() { return listeners_; }
  const Listeners& listeners() const { return listeners_; }

  // Processes the poller's events and returns the accepted peers. `wanted` is called for each peer
  // before it is accepted; false closes the connection. `held`, if given, is called first; true
  // keeps the connection pending. Makes no system call if there was no event.
  using Asked = std::function<bool(const std::string& peer_id, size_t rail)>;
  std::vector<Accepted> step(const Asked& wanted, const Asked& held = {});

  // Pending connections.
  size_t guests() const { return guests_.size(); }

  // Pending connections that are not authenticated yet.
  size_t strangers() const;
  const Refusals& refusals() const { return refusals_; }
  // The next time at which step() must run without an event.
  Deadline next_timer() const;

 private:
  struct Guest {
    Guest(Arrival arrival, bool over_unix, const Identity& self, HeardHellos& heard, Poller& poller)
        : greeting(std::move(arrival.socket), self, heard, poller),
          from(std::move(arrival.from)),
          same_host(over_unix) {}
    bool is_stranger() const { return greeting.state() == IncomingGreeting::State::kWaiting; }
    IncomingGreeting greeting;
    std::string from;
    bool same_host;
  };
  void ready(unsigned) override { knocked_ = true; }
  void let_in(Listener& listener);
  void turn_away_the_slow();
  bool same_user(int fd) const;

  const Identity& self_;
  Poller& poller_;
  HeardHellos heard_;
  Refusals refusals_;
  Listeners listeners_;
  bool knocked_ = true;
  std::list<Guest> guests_;  // oldest first
};

}  // namespace hccl_like
