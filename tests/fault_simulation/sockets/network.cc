#include "tests/fault_simulation/sockets/network.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/security/greeting.h"

namespace hccl_like::fault_simulation {
namespace {

constexpr uint32_t kLoopback = 0x7f000001, kBridge = 0xac110001;  // 127.0.0.1, 172.17.0.1
constexpr uint32_t kNetwork[] = {0x0a000000, 0x0a010000};         // 10.0.0.0, 10.1.0.0
constexpr Time kFirstAttempt = 200 * kMillisecond, kFirstSyn = kSecond;

// When a kernel tries again what it sent at `sent`: after pauses that double. The first of these
// after `after`.
Time attempt_after(Time sent, Time first, Time after) {
  Time pause = first, when = sent;
  while (when <= after) {
    when += pause;
    pause *= 2;
  }
  return when;
}

}  // namespace

Time Network::delay(int from, int to) {
  if (from == to) return random.between(kMicrosecond, 30 * kMicrosecond);
  return random.chance(5) ? random.between(0, 5 * slowest_)
                          : random.between(10 * kMicrosecond, slowest_);
}

// When what should arrive `at` does, given the silence; kForEver: never.
Time Network::arrival(const Socket& connection, int from, int to, Time sent, Time at) const {
  const Time until = silent_until(connection, from, to);
  if (at >= until) return at;
  if (until >= kForEver) return kForEver;
  return attempt_after(sent, kFirstAttempt, until) + (at - sent) % (50 * kMicrosecond);
}

Time Network::silent_until(const Socket& connection, int from, int to) const {
  const Time pair = silent_until(from, to);
  const bool second = std::max(connection.local.ip, connection.remote.ip) >= kNetwork[1];
  if (from == to || lost_ != (second ? 1 : 0)) return pair;
  return std::max(pair, lost_network_.until);
}

Time Network::silent_since(const Socket& connection, int from, int to) const {
  const Silence& pair = silence_[index(from * hosts_ + to)];
  return pair.until > now || !silent(connection, from, to) ? pair.since : lost_network_.since;
}

uint32_t Network::address(int host, int which) const {
  return kNetwork[which] + static_cast<uint32_t>(host) + 1;
}

std::vector<std::pair<std::string, uint32_t>> Network::interfaces(int host) const {
  std::vector<std::pair<std::string, uint32_t>> all{{"lo", kLoopback}, {"eth0", address(host, 0)}};
  if (second_network) all.insert(all.begin() + 1, {"eth1", address(host, 1)});
  if (bridges) all.emplace_back("docker0", kBridge);
  return all;
}

// -1: nowhere.
int Network::route(int host, uint32_t ip) const {
  if (ip == kLoopback || ip == kBridge) return host;
  for (int which = 0; which < 2; ++which)
    for (int to = 0; to < hosts_; ++to)
      if (ip == address(to, which))
        return which == 1 && !second_network_works && to != host ? -1 : to;
  return -1;
}

std::shared_ptr<Socket> Network::listener(int host, Endpoint at) const {
  for (const auto& weak : sockets_) {
    const auto socket = weak.lock();
    if (socket && socket->state == Socket::State::kListening && socket->host == host &&
        socket->local == at)
      return socket;
  }
  return nullptr;
}

bool Network::listens(uint32_t ip, int host, uint16_t port) const {
  return listener(host, {ip, port}) != nullptr;
}

std::vector<Endpoint> Network::listeners() const {
  std::vector<Endpoint> found;
  for (const auto& weak : sockets_) {
    const auto socket = weak.lock();
    if (socket && socket->state == Socket::State::kListening && socket->local.ip != kLoopback &&
        socket->local.ip != kBridge)
      found.push_back(socket->local);
  }
  return found;
}

int Network::listen(Socket& socket) {
  if (listens(socket.local.ip, socket.host, socket.local.port)) return EADDRINUSE;
  socket.state = Socket::State::kListening;
  sockets_.push_back(socket.weak_from_this());
  return 0;
}

void Network::refuse(Socket& socket) {
  socket.state = Socket::State::kFresh;
  for (const auto& waiting : socket.backlog) {
    waiting->closed = true;
    send_reset(socket.host, waiting->other);
  }
  socket.backlog.clear();
}

uint16_t Network::free_port() { return static_cast<uint16_t>(random.between(32768, 60999)); }

int Network::connect(const std::shared_ptr<Socket>& socket, Endpoint to) {
  const int host = route(socket->host, to.ip);
  socket->state = Socket::State::kConnecting;
  socket->connector = true;
  socket->remote = to;
  const bool own = to.ip == kLoopback || to.ip == kBridge || host == socket->host;
  socket->local = {own ? to.ip : address(socket->host, to.ip >= kNetwork[1] ? 1 : 0), free_port()};
  sockets_.push_back(socket);
  if (host >= 0) knock(socket, host, now);
  return EINPROGRESS;
}

// The first segment of a connection, and what comes of it.
void Network::knock(const std::shared_ptr<Socket>& from, int to, Time since) {
  const Time there = delay(from->host, to), back = delay(to, from->host);
  at(now + there, [=, this] {
    if (from->closed) return;
    const Time until =
        std::max(silent_until(*from, from->host, to), silent_until(*from, to, from->host));
    if (until > now) {
      if (until < kForEver)
        at(attempt_after(since, kFirstSyn, until), [=, this] { knock(from, to, since); });
      return;
    }
    const auto door = listener(to, from->remote);
    if (!door) {
      at(now + back, [=, this] { reset(from, ECONNREFUSED); });
      return;
    }
    const auto end = std::make_shared<Socket>(door->process(), to);
    end->state = Socket::State::kUp;
    end->local = from->remote;
    end->remote = from->local;
    end->heard = now;
    end->other = from;
    sockets_.push_back(end);
    at(now + back, [=, this] {
      if (from->closed) return send_reset(from->host, end);
      from->other = end;
      from->state = Socket::State::kUp;
      from->heard = now;
      changed(*from);
      at(now + delay(from->host, to), [=, this] {
        if (door->closed || door->state != Socket::State::kListening) return send_reset(to, from);
        door->backlog.push_back(end);
        changed(*door);
      });
    });
  });
}

void Network::send(const std::shared_ptr<Socket>& socket, std::string bytes) {
  const size_t count = bytes.size();
  if (count > 1 && random.chance(15)) {
    const size_t first = 1 + random.below(count - 1);
    send(socket, bytes.substr(0, first));
    return send(socket, bytes.substr(first));
  }
  const Time earliest = socket->flight.empty() ? now : std::max(now, socket->flight.back().at);
  const int to = socket->other->host;
  const bool was_empty = socket->flight.empty();
  socket->flight.push_back(
      {std::move(bytes), now, std::max(earliest, now + delay(socket->host, to))});
  socket->under_way += count;
  socket->sent += count;
  socket->unacked.emplace_back(count, now);
  socket->unacked_bytes += count;
  if (was_empty) pump(socket);
}

// Sees to the first segment under way.
void Network::pump(const std::shared_ptr<Socket>& from) {
  const Socket::Segment& first = from->flight.front();
  const Time when =
      arrival(*from, from->host, from->other->host, first.sent, std::max(now, first.at));
  if (when < kForEver) at(when, [=, this] { arrive(from); });
}

void Network::arrive(const std::shared_ptr<Socket>& from) {
  const auto to = from->other;
  if (from->flight.empty() || !to) return;
  if (silent(*from, from->host, to->host)) return pump(from);
  Socket::Segment segment = std::move(from->flight.front());
  from->flight.pop_front();
  from->under_way -= segment.bytes.size();
  to->heard = now;
  if (to->closed || to->state == Socket::State::kOver) {
    // The kernel says that nobody is there. An end is no news to it.
    if (!segment.fin) send_reset(to->host, from);
  } else {
    damage(*from, *to, segment.bytes);
    to->in += segment.bytes;
    to->fin |= segment.fin;
    changed(*to);
  }
  acknowledge(from, segment.bytes.size(), segment.sent);
  if (!from->flight.empty()) pump(from);
}

void Network::damage(const Socket& from, const Socket& to, std::string& bytes) {
  if (damage_.a != from.host || damage_.b != to.host || bytes.empty()) return;
  const size_t begins = to.taken + to.unread();
  const size_t greeting = from.connector ? greeting::kHelloBytes + greeting::kCommitBytes
                                         : greeting::kAnswerBytes + greeting::kWelcomeBytes;
  const size_t at = random.below(bytes.size());
  // Checksums protect unencrypted bytes, but not against malice.
  if (begins + at >= greeting && !damage_.sealed) return;
  bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
  damage_ = {};
  corrupted = true;
  corrupted_a_wire |= begins + at >= (from.connector ? greeting : greeting::kAnswerBytes);
}

void Network::acknowledge(const std::shared_ptr<Socket>& sender, size_t bytes, Time sent) {
  const int here = sender->host, there = sender->other->host;
  const Time when = arrival(*sender, there, here, sent, now + delay(there, here));
  if (when >= kForEver) return;
  at(when, [=, this] {
    if (silent(*sender, there, here)) return acknowledge(sender, bytes, sent);
    sender->heard = now;
    size_t left = bytes;
    while (left > 0 && !sender->unacked.empty()) {
      auto& first = sender->unacked.front();
      const size_t part = std::min(left, first.first);
      first.first -= part;
      left -= part;
      sender->unacked_bytes -= part;
      if (first.first == 0) sender->unacked.pop_front();
    }
    changed(*sender);
  });
}

void Network::received(Socket& socket, std::string_view bytes) {
  if (socket.other && socket.other->connector && socket.hello.size() < greeting::kHelloBytes) {
    socket.hello += bytes.substr(0, greeting::kHelloBytes - socket.hello.size());
    if (socket.hello.size() == greeting::kHelloBytes)
      hellos.emplace_back(socket.other->remote, socket.hello);
  }
  if (socket.other && !socket.other->closed) changed(*socket.other);
}

void Network::close(const std::shared_ptr<Socket>& socket) {
  socket->closed = true;
  if (socket->state == Socket::State::kListening) {
    refuse(*socket);
    socket->state = Socket::State::kOver;
    return;
  }
  if (socket->state != Socket::State::kUp || !socket->other) return;
  socket->state = Socket::State::kOver;
  if (socket->reset_on_close || socket->unread() > 0) {
    socket->flight.clear();
    return send_reset(socket->host, socket->other);
  }
  const bool was_empty = socket->flight.empty();
  const Time earliest = was_empty ? now : std::max(now, socket->flight.back().at);
  socket->flight.push_back({"", now, earliest + delay(socket->host, socket->other->host), true});
  if (was_empty) pump(socket);
}

// Lost if it does not get through: it is not repeated.
void Network::send_reset(int from_host, const std::shared_ptr<Socket>& to) {
  if (!to) return;
  at(now + delay(from_host, to->host), [=, this] {
    if (!silent(*to, from_host, to->host)) reset(to, ECONNRESET);
  });
}

void Network::reset(const std::shared_ptr<Socket>& socket, int error) {
  if (socket->closed || socket->state == Socket::State::kOver) return;
  socket->state = Socket::State::kOver;
  socket->error = error;
  socket->flight.clear();
  socket->under_way = 0;
  changed(*socket);
}

}  // namespace hccl_like::fault_simulation
