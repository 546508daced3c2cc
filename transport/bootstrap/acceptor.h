#pragma once
// Takes in the peers that connect to this process, and keeps everybody else out.
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "transport/bootstrap/greeting.h"
#include "transport/bootstrap/listeners.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// A peer at the door: it has proved who it is, and knows that this connection counts.
struct Accepted {
  Fd socket;
  std::string peer_id;
  size_t rail = 0;         // which of the connections between the two this is
  std::string from;        // "10.0.0.5:51234"
  bool same_host = false;  // came over the UNIX socket
  Key session;             // what only the two ends know
};

// Strangers cost at most kMaxStrangers descriptors for kBackoff each and 256 bytes read per
// connection. Used by one thread at a time; nothing blocks.
class Acceptor final : private Pollable {
 public:
  static constexpr size_t kMaxStrangers = 64;
  static constexpr std::chrono::milliseconds kBackoff{1000};
  // For those that have proved themselves and must only say that they won: their host may have
  // died.
  static constexpr std::chrono::milliseconds kLongBackoff{60'000};

  // `self` and the poller must outlive it.
  Acceptor(const Identity& self, Poller& poller);
  ~Acceptor() override;

  // The sockets on which it listens.
  Listeners& listeners() { return listeners_; }
  const Listeners& listeners() const { return listeners_; }

  // Goes on with whatever the poller has reported, and returns the peers that are through. `wanted`
  // is asked for each before it is let in; false closes the connection. Free of system calls if
  // nothing was reported. `held`, if given, is asked first: true leaves the peer at the door for
  // now.
  using Asked = std::function<bool(const std::string& peer_id, size_t rail)>;
  std::vector<Accepted> step(const Asked& wanted, const Asked& held = {});

  // Connections that are not through.
  size_t guests() const { return guests_.size(); }

  // Connections that have not proved anything yet.
  size_t strangers() const;
  // Those that were turned away, with their reasons.
  const Refusals& refusals() const { return refusals_; }
  // When step() has something to close although nothing was reported.
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
  void let_in(Listener& door);
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
