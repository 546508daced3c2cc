#include "transport/bootstrap/acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace hccl_like {

Acceptor::Acceptor(const Identity& self, Poller& poller) : self_(self), poller_(poller) {
  poller_.watch(listeners_.fd(), EPOLLIN, *this);
}

Acceptor::~Acceptor() { poller_.forget(listeners_.fd()); }

std::vector<Accepted> Acceptor::step(const Asked& wanted, const Asked& held) {
  if (std::exchange(knocked_, false))
    for (Listener& listener : listeners_.listeners()) let_in(listener);

  std::vector<Accepted> through;
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto state = guest->greeting.step();
    const bool committed = state == IncomingGreeting::State::kCommitted;
    const std::string& id = guest->greeting.peer_id();
    const size_t rail = guest->greeting.rail();
    if (committed && held && held(id, rail)) {
      ++guest;
      continue;
    }
    if (committed && wanted(id, rail))
      if (Fd socket = guest->greeting.welcome(); socket.valid())
        through.push_back({std::move(socket), id, rail, guest->from, guest->same_host,
                           guest->greeting.session()});
    // A connector closes its losing connections; that is no rejection.
    if (state == IncomingGreeting::State::kFailed &&
        (!guest->greeting.was_believed() || guest->greeting.refusal() != Refusal::kLeft))
      refusals_.count(guest->greeting.refusal(), guest->from);
    const bool over = committed || state == IncomingGreeting::State::kFailed;
    guest = over ? guests_.erase(guest) : std::next(guest);
  }
  turn_away_the_slow();
  return through;
}

void Acceptor::let_in(Listener& listener) {
  const bool same_host = !listener.name().empty();
  for (;;) {
    Arrival arrival = listener.accept();
    if (!arrival.socket.valid()) return;
    if (same_host && !same_user(arrival.socket.get())) {
      refusals_.count(Refusal::kOtherUser, arrival.from);
      continue;
    }
    // The hello mostly arrives with the connection, so one step frees the place of a stranger.
    guests_.emplace_back(std::move(arrival), same_host, self_, heard_, poller_).greeting.step();
    // Beyond kMaxStrangers the oldest stranger is dropped, so that a flood cannot block peers.
    if (strangers() > kMaxStrangers) {
      const auto oldest = std::ranges::find_if(guests_, &Guest::is_stranger);
      refusals_.count(Refusal::kTooMany, oldest->from);
      guests_.erase(oldest);
    }
  }
}

void Acceptor::turn_away_the_slow() {
  if (guests_.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(guests_, [&](const Guest& guest) {
    const bool stranger = guest.is_stranger();
    const bool late = now - guest.greeting.since > (stranger ? kTimeout : kLongTimeout);
    if (late && stranger) refusals_.count(Refusal::kTooSlow, guest.from);
    return late;
  });
}

// Abstract sockets have no permissions: any process of the network name space can connect.
bool Acceptor::same_user(int fd) const {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

size_t Acceptor::strangers() const {
  return static_cast<size_t>(std::count_if(guests_.begin(), guests_.end(),
                                           [](const Guest& guest) { return guest.is_stranger(); }));
}

Deadline Acceptor::next_timer() const {
  for (const Guest& guest : guests_)
    if (guest.is_stranger()) return Deadline::at(guest.greeting.since + kTimeout);
  return Deadline::never();
}

}  // namespace hccl_like
