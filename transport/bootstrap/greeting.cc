#include "transport/bootstrap/greeting.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/error.h"

namespace hccl_like {
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

GreetingSocket::Received GreetingSocket::peek() {
  char byte;
  ssize_t got;
  do got = ::recv(socket_.get(), &byte, sizeof byte, MSG_DONTWAIT | MSG_PEEK);
  while (got < 0 && errno == EINTR);
  if (got > 0) return Received::kAll;
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Received::kNotYet : Received::kGone;
}

Fd GreetingSocket::release() {
  poller_.forget(socket_.get());
  return std::move(socket_);
}

OutgoingGreeting::OutgoingGreeting(Fd socket, const Identity& self, const Identity& target,
                                   size_t rail, Poller& poller)
    : socket_(std::move(socket), EPOLLOUT, poller), calling_(self, target, rail) {
  socket_.take_ready();  // wait for the poller's event before the first send
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
  if (!socket_.send(calling_.hello())) return fail(socket_.cause());
  socket_.watch_input();
  state_ = State::kHelloSent;
}

void OutgoingGreeting::on_answer() {
  const auto received = socket_.receive(greeting::kAnswerBytes);
  if (received == GreetingSocket::Received::kNotYet) return;
  if (received == GreetingSocket::Received::kGone)
    return fail(socket_.cause() + " before it answered");
  if (!calling_.believes_answer(socket_.received())) return fail("another process answers there");
  socket_.clear_received();
  state_ = State::kVerified;
}

void OutgoingGreeting::commit() {
  if (!socket_.send(calling_.commit())) return fail(socket_.cause());
  socket_.watch_input();
  state_ = State::kCommitted;
}

void OutgoingGreeting::on_welcome() {
  const auto received = socket_.receive(greeting::kWelcomeBytes);
  if (received == GreetingSocket::Received::kNotYet) return;
  if (received == GreetingSocket::Received::kGone)
    return fail(socket_.cause() + " before it welcomed us");
  if (!calling_.believes_welcome(socket_.received())) return fail("it does not speak our protocol");
  state_ = State::kWelcome;
}

void OutgoingGreeting::fail(std::string cause) {
  cause_ = std::move(cause);
  state_ = State::kFailed;
}

IncomingGreeting::IncomingGreeting(Fd socket, const Identity& self, HeardHellos& heard,
                                   Poller& poller)
    : socket_(std::move(socket), EPOLLIN, poller), hosting_(self), heard_(heard) {}

IncomingGreeting::State IncomingGreeting::step() {
  if (state_ == State::kFailed || !socket_.take_ready()) return state_;
  switch (state_) {
    case State::kWaiting:
      on_hello();
      break;
    case State::kVerified:
      on_commit();
      break;
    default:
      on_more();
  }
  return state_;
}

void IncomingGreeting::on_hello() {
  const auto received = socket_.receive(greeting::kHelloBytes);
  // Reject at the first wrong byte: a port scanner's request is shorter than a hello.
  if (!greeting::could_be_hello(socket_.received())) return refuse(Refusal::kNotOurs);
  if (received == GreetingSocket::Received::kGone) return refuse(Refusal::kLeft);
  if (received == GreetingSocket::Received::kNotYet) return;
  switch (hosting_.hear_hello(socket_.received())) {
    case greeting::Hosting::Verdict::kNotOurs:
      return refuse(Refusal::kNotOurs);
    case greeting::Hosting::Verdict::kOtherProcess:
      return refuse(Refusal::kOtherProcess);
    case greeting::Hosting::Verdict::kUnproved:
      return refuse(Refusal::kUnproved);
    case greeting::Hosting::Verdict::kBelieved:
      break;
  }
  if (!heard_.remember(hosting_.fresh())) return refuse(Refusal::kReplayed);
  if (!socket_.send(hosting_.answer())) return refuse(Refusal::kLeft);
  socket_.clear_received();
  socket_.watch_input();
  state_ = State::kVerified;
}

void IncomingGreeting::on_commit() {
  const auto received = socket_.receive(greeting::kCommitBytes);
  if (received == GreetingSocket::Received::kNotYet) return;
  if (received == GreetingSocket::Received::kGone) return refuse(Refusal::kLeft);
  if (!hosting_.believes_commit(socket_.received())) return refuse(Refusal::kUnproved);
  state_ = State::kCommitted;
}

// The connector waits for its welcome, which is held back while another connection is being made. A
// connector that has left must not be welcomed, and unread bytes would keep the poller awake.
void IncomingGreeting::on_more() {
  const auto more = socket_.peek();
  if (more == GreetingSocket::Received::kGone) refuse(Refusal::kLeft);
  if (more == GreetingSocket::Received::kAll) refuse(Refusal::kNotOurs);
}

void IncomingGreeting::refuse(Refusal refusal) {
  refusal_ = refusal;
  state_ = State::kFailed;
}

Fd IncomingGreeting::welcome() {
  return socket_.send(hosting_.welcome()) ? socket_.release() : Fd();
}

}  // namespace hccl_like
