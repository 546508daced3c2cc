#include "transport/bootstrap_greeting.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/error.h"
#include "transport/bootstrap_random.h"

namespace hccl_like {
namespace {

constexpr size_t kHalfNonce = kNonceDigits / 2;

// The magic ends with the version of the protocol.
constexpr std::string_view kHelloMagic = "hccl-like hello 01";
constexpr std::string_view kAnswerMagic = "hccl-like reply 01";
using greeting::kCommit;
using greeting::kWelcome;
static_assert(kProtocolVersion == 1, "change both magic texts, too");

constexpr size_t kHelloBytes = kHelloMagic.size() + kIdDigits + kIdDigits + kHalfNonce;
constexpr size_t kAnswerBytes = kAnswerMagic.size() + kIdDigits + kHalfNonce;
static_assert(kHelloBytes <= 256, "what a stranger may make us read");

std::string_view first_half(const Identity& identity) {
  return std::string_view(identity.nonce).substr(0, kHalfNonce);
}
std::string_view second_half(const Identity& identity) {
  return std::string_view(identity.nonce).substr(kHalfNonce);
}

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string greeting::hello(const Identity& self, const Identity& target) {
  std::string text(kHelloMagic);
  return text.append(self.id).append(target.id).append(first_half(target));
}

std::string greeting::answer(const Identity& self) {
  std::string text(kAnswerMagic);
  return text.append(self.id).append(second_half(self));
}

GreetingSocket::GreetingSocket(Fd socket, unsigned events, Poller& poller)
    : socket_(std::move(socket)), poller_(poller) {
  poller_.watch(socket_.get(), events, *this);
}

GreetingSocket::~GreetingSocket() {
  if (socket_.valid()) poller_.forget(socket_.get());
}

bool GreetingSocket::take_ready() { return std::exchange(ready_, false); }

void GreetingSocket::watch_input() {
  poller_.rewatch(socket_.get(), EPOLLIN, *this);
  ready_ = true;
}

bool GreetingSocket::send(std::string_view message) {
  ssize_t sent;
  do sent = ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(message.size())) return true;
  cause_ = sent < 0 ? errno_text(errno) : "the connection takes no bytes";
  return false;
}

GreetingSocket::Received GreetingSocket::receive(size_t bytes) {
  while (received_.size() < bytes) {
    char chunk[256];
    const size_t want = std::min(sizeof chunk, bytes - received_.size());
    const ssize_t got = ::recv(socket_.get(), chunk, want, MSG_DONTWAIT);
    if (got > 0) {
      received_.append(chunk, static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Received::kNotYet;
    cause_ = got == 0 ? "closed by the other end" : errno_text(errno);
    return Received::kGone;
  }
  return Received::kAll;
}

Fd GreetingSocket::release() {
  poller_.forget(socket_.get());
  return std::move(socket_);
}

OutgoingGreeting::OutgoingGreeting(Fd socket, const Identity& self, const Identity& target,
                                   Poller& poller)
    : socket_(std::move(socket), EPOLLOUT, poller), self_(self), target_(target) {
  socket_.take_ready();  // connected is what the poller says, not what we hope
}

OutgoingGreeting::State OutgoingGreeting::step() {
  while (state_ != State::kFailed && state_ != State::kVerified && state_ != State::kWelcome &&
         socket_.take_ready()) {
    switch (state_) {
      case State::kConnecting:
        on_connected();
        break;
      case State::kHelloSent:
        on_answer();
        break;
      default:
        on_welcome();
    }
  }
  return state_;
}

void OutgoingGreeting::on_connected() {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return fail(errno_text(error));
  if (!socket_.send(greeting::hello(self_, target_))) return fail(socket_.cause());
  socket_.watch_input();
  state_ = State::kHelloSent;
}

void OutgoingGreeting::on_answer() {
  const auto received = socket_.receive(kAnswerBytes);
  if (received == GreetingSocket::Received::kNotYet) return;
  if (received == GreetingSocket::Received::kGone)
    return fail(socket_.cause() + " before it answered");
  if (!equal_in_constant_time(socket_.received(), greeting::answer(target_)))
    return fail("another process answers there");
  socket_.clear_received();
  state_ = State::kVerified;
}

void OutgoingGreeting::commit() {
  if (!socket_.send(kCommit)) return fail(socket_.cause());
  socket_.watch_input();
  state_ = State::kCommitted;
}

void OutgoingGreeting::on_welcome() {
  const auto received = socket_.receive(kWelcome.size());
  if (received == GreetingSocket::Received::kNotYet) return;
  if (received == GreetingSocket::Received::kGone)
    return fail(socket_.cause() + " before it welcomed us");
  if (socket_.received() != kWelcome) return fail("it does not speak our protocol");
  state_ = State::kWelcome;
}

void OutgoingGreeting::fail(std::string cause) {
  cause_ = std::move(cause);
  state_ = State::kFailed;
}

IncomingGreeting::IncomingGreeting(Fd socket, const Identity& self, Poller& poller)
    : socket_(std::move(socket), EPOLLIN, poller), self_(self) {}

IncomingGreeting::State IncomingGreeting::step() {
  if ((state_ != State::kWaiting && state_ != State::kVerified) || !socket_.take_ready())
    return state_;
  if (state_ == State::kWaiting) {
    on_hello();
    return state_;
  }
  const auto received = socket_.receive(kCommit.size());
  if (received == GreetingSocket::Received::kNotYet) return state_;
  const bool committed =
      received == GreetingSocket::Received::kAll && socket_.received() == kCommit;
  return state_ = committed ? State::kCommitted : State::kFailed;
}

void IncomingGreeting::on_hello() {
  const auto received = socket_.receive(kHelloBytes);
  const std::string& hello = socket_.received();
  // Strangers are turned away at the first byte that differs: a port scanner's request is shorter than a hello.
  const size_t known = std::min(hello.size(), kHelloMagic.size());
  if (hello.compare(0, known, kHelloMagic, 0, known) != 0 ||
      received == GreetingSocket::Received::kGone) {
    state_ = State::kFailed;
    return;
  }
  if (received == GreetingSocket::Received::kNotYet) return;

  const std::string_view fields = std::string_view(hello).substr(kHelloMagic.size());
  const std::string_view connector = fields.substr(0, kIdDigits);
  std::string expected(self_.id);
  expected.append(first_half(self_));
  if (!equal_in_constant_time(fields.substr(kIdDigits), expected) || !is_hexadecimal(connector) ||
      connector == self_.id || !socket_.send(greeting::answer(self_))) {
    state_ = State::kFailed;
    return;
  }
  peer_id_ = connector;
  socket_.clear_received();
  socket_.watch_input();
  state_ = State::kVerified;
}

Fd IncomingGreeting::welcome() { return socket_.send(kWelcome) ? socket_.release() : Fd(); }

}  // namespace hccl_like
