#pragma once
// The handshake of security/greeting.h on a fresh socket.
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/deadline.h"
#include "core/base/fd.h"
#include "transport/bootstrap/refusals.h"
#include "transport/security/greeting.h"
#include "transport/security/heard_hellos.h"
#include "transport/wire/poller.h"

namespace hccl_like {

// A non-blocking socket for messages of fixed size, smaller than any socket buffer.
class GreetingSocket : private Pollable {
 public:
  // `events`: EPOLLOUT for a socket that is still connecting, else EPOLLIN.
  GreetingSocket(Fd socket, unsigned events, Poller& poller);
  ~GreetingSocket() override;
  GreetingSocket(const GreetingSocket&) = delete;

  int fd() const { return socket_.get(); }
  // True if there was an event since the last call. True at the first call.
  bool take_ready();
  void watch_input();
  // False if the connection is lost.
  bool send(std::string_view message);
  enum class Received { kNotYet, kAll, kGone };
  // Checks for bytes or the end without reading: kAll if bytes are there.
  Received peek();
  // Collects up to `bytes` in received(), never more: the following bytes belong to the wire.
  Received receive(size_t bytes);
  const std::string& received() const { return received_; }
  void clear_received() { received_.clear(); }
  const std::string& cause() const { return cause_; }
  Fd release();

 private:
  void ready(unsigned) override { ready_ = true; }

  Fd socket_;
  Poller& poller_;
  bool ready_ = true;
  std::string received_;
  std::string cause_;
};

// The connector's end.
class OutgoingGreeting {
 public:
  enum class State { kConnecting, kHelloSent, kVerified, kCommitted, kWelcome, kFailed };

  // `socket`: connect() was called.
  OutgoingGreeting(Fd socket, const Identity& self, const Identity& target, size_t rail,
                   Poller& poller);

  State step();
  State state() const { return state_; }
  // In kVerified: chooses this connection.
  void commit();
  const std::string& cause() const { return cause_; }
  // In kWelcome.
  Fd release() { return socket_.release(); }
  // From kVerified on.
  Key session() const { return calling_.session(); }

 private:
  void on_connected();
  void on_answer();
  void on_welcome();
  void fail(std::string cause);

  GreetingSocket socket_;
  greeting::Calling calling_;
  State state_ = State::kConnecting;
  std::string cause_;
};

// The acceptor's end.
class IncomingGreeting {
 public:
  enum class State { kWaiting, kVerified, kCommitted, kFailed };

  // `heard`: shared by all connections of this process; must outlive this object.
  IncomingGreeting(Fd socket, const Identity& self, HeardHellos& heard, Poller& poller);

  // In kCommitted, fails if the connector leaves or sends bytes before the welcome.
  State step();
  State state() const { return state_; }
  // In kFailed: the reason, and whether the hello had authenticated.
  Refusal refusal() const { return refusal_; }
  bool was_believed() const { return !hosting_.peer_id().empty(); }
  // From kVerified on.
  const std::string& peer_id() const { return hosting_.peer_id(); }
  size_t rail() const { return hosting_.rail(); }
  // From kVerified on.
  Key session() const { return hosting_.session(); }
  // In kCommitted: sends the welcome and releases the socket; empty if the connection is lost.
  Fd welcome();

  const std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

 private:
  void on_hello();
  void on_commit();
  void on_more();
  void refuse(Refusal refusal);

  GreetingSocket socket_;
  greeting::Hosting hosting_;
  HeardHellos& heard_;
  State state_ = State::kWaiting;
  Refusal refusal_ = Refusal::kLeft;
};

}  // namespace hccl_like
