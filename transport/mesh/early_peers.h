#pragma once
// Authenticated connections of peers that no group of this process has introduced yet.
#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "core/base/deadline.h"
#include "transport/bootstrap/acceptor.h"

namespace hccl_like {

// A peer that learns of a new group first connects before this process knows the peer. Its socket
// waits here unread and unwatched: a peer that is never introduced costs one descriptor for
// kHeldAtMost and no work. Used by one thread at a time; nothing blocks.
class EarlyPeers {
 public:
  using Clock = std::chrono::steady_clock;
  // Further peers are rejected, and retry.
  static constexpr size_t kMost = 256;
  static constexpr std::chrono::milliseconds kHeldAtMost{60'000};

  // Closes connections held longer than kHeldAtMost.
  void begin_turn(Clock::time_point now = Clock::now()) {
    admitted_ = 0;
    peers_.remove_if([&](const Held& one) { return now - one.since >= kHeldAtMost; });
  }
  // The next time at which begin_turn() has a connection to close.
  Deadline next_timer() const {
    return peers_.empty() ? Deadline::never() : Deadline::at(peers_.front().since + kHeldAtMost);
  }
  // Reserves a place: a turn admits several peers before it holds them.
  bool admit() {
    if (peers_.size() + admitted_ >= kMost) return false;
    ++admitted_;
    return true;
  }
  // Holds an admitted peer. A newer connection of a peer replaces the older one, which that peer
  // has abandoned.
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
