#pragma once
// Connections of peers that have proved themselves, and that nobody here has introduced yet.
#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "core/base/deadline.h"
#include "transport/bootstrap/acceptor.h"

namespace hccl_like {

// A peer that learns of a new group first connects before this process knows it. Its socket waits
// here, unread and unwatched, so that one which is never introduced costs a descriptor for a while
// and no work. Used by one thread at a time; nothing blocks.
class EarlyPeers {
 public:
  using Clock = std::chrono::steady_clock;
  // Whoever finds no room is turned away, and comes again.
  static constexpr size_t kMost = 256;
  static constexpr std::chrono::milliseconds kHeldAtMost{60'000};

  // Closes what was held for too long.
  void begin_turn(Clock::time_point now = Clock::now()) {
    admitted_ = 0;
    peers_.remove_if([&](const Held& one) { return now - one.since >= kHeldAtMost; });
  }
  // When begin_turn() has something to close.
  Deadline next_timer() const {
    return peers_.empty() ? Deadline::never() : Deadline::at(peers_.front().since + kHeldAtMost);
  }
  // Whether one more peer may be let in in this turn. It counts before it is held: a turn lets
  // several in, then holds them.
  bool admit() {
    if (peers_.size() + admitted_ >= kMost) return false;
    ++admitted_;
    return true;
  }
  // Holds a peer that was admitted. A newer connection of the same peer replaces the older one,
  // which the peer has given up.
  void hold(Accepted peer, Clock::time_point now = Clock::now()) {
    (void)take(peer.peer_id);
    peers_.push_back({std::move(peer), now});
  }
  std::optional<Accepted> take(const std::string& id) {
    for (auto one = peers_.begin(); one != peers_.end(); ++one) {
      if (one->peer.peer_id != id) continue;
      std::optional<Accepted> found(std::move(one->peer));
      peers_.erase(one);
      return found;
    }
    return std::nullopt;
  }
  size_t size() const { return peers_.size(); }

 private:
  struct Held {
    Accepted peer;
    Clock::time_point since;
  };
  std::list<Held> peers_;  // oldest first
  size_t admitted_ = 0;    // in this turn
};

}  // namespace hccl_like
