// Implements the faults of the network.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "tests/fault_simulation/sockets/network.h"
#include "transport/security/greeting.h"

namespace hccl_like::fault_simulation {

void Network::silence(int a, int b, Time until) {
  Silence& one = silence_[index(a * hosts_ + b)];
  if (one.until <= now) one.since = now;
  one.until = std::max(one.until, until);
  keep_all_alive([&](const Socket& socket) {
    const int here = socket.host, there = socket.other->host;
    return (here == a && there == b) || (here == b && there == a);
  });
}

void Network::lose_network(int which, Time until) {
  lost_ = which;
  lost_network_ = {until, now};
  keep_all_alive([](const Socket&) { return true; });
}

void Network::keep_all_alive(const std::function<bool(const Socket&)>& concerned) {
  for (const auto& weak : std::vector<std::weak_ptr<Socket>>(sockets_))
    if (const auto socket = weak.lock(); socket && socket->other && concerned(*socket))
      keep_alive(socket);
}

void Network::keep_alive(const std::shared_ptr<Socket>& socket) {
  if (!socket->keepalive || !socket->other) return;
  const int here = socket->host, there = socket->other->host;
  if (silent(*socket, here, there) || silent(*socket, there, here)) probe(socket);
}

// The questions of a kernel on a connection where nothing is under way, while there is no way to
// the other end and back.
void Network::probe(const std::shared_ptr<Socket>& socket) {
  if (socket->closed || socket->state != Socket::State::kUp || !socket->keepalive) return;
  const int here = socket->host, there = socket->other->host;
  const bool out = silent(*socket, here, there), back = silent(*socket, there, here);
  if (!out && !back) return;
  const Time out_since = silent_since(*socket, here, there),
             back_since = silent_since(*socket, there, here);
  Time since = out ? out_since : back_since;
  if (out && back) since = std::min(out_since, back_since);
  const Time answered = std::max(socket->heard, since);
  const Time ends = answered + socket->idle + socket->probes * socket->interval;
  if (socket->unacked_bytes == 0 && now >= ends) {
    const auto other = socket->other;
    reset(socket, ETIMEDOUT);
    return send_reset(here, other);
  }
  const Time next = now < ends ? ends : now + socket->interval;
  if (next < kForEver) at(next, [=, this] { probe(socket); });
}

bool Network::cut(int a, int b, bool replaceable, bool* committed) {
  std::vector<std::shared_ptr<Socket>> found;
  for (const auto& weak : sockets_) {
    const auto socket = weak.lock();
    if (socket && socket->connector && socket->state == Socket::State::kUp && socket->other &&
        ((socket->host == a && socket->other->host == b) ||
         (socket->host == b && socket->other->host == a)))
      found.push_back(socket);
  }
  if (found.empty()) return false;
  const auto socket = found[random.below(found.size())];
  const size_t greeted = greeting::kAnswerBytes + greeting::kWelcomeBytes;
  *committed = socket->sent > greeting::kHelloBytes && (!replaceable || socket->taken < greeted);
  const auto other = socket->other;
  reset(socket, ECONNRESET);
  reset(other, ECONNRESET);
  return true;
}

bool Network::greets() const {
  return std::ranges::any_of(sockets_, [](const auto& weak) {
    const auto socket = weak.lock();
    return socket && socket->connector && !socket->closed &&
           socket->taken < greeting::kAnswerBytes + greeting::kWelcomeBytes;
  });
}

void Network::corrupt(int a, int b, bool sealed) { damage_ = {a, b, sealed}; }

}  // namespace hccl_like::fault_simulation
