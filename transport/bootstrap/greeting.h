#pragma once
// The greeting of security/greeting.h on a fresh socket.
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

// A non-blocking socket on which messages of fixed size, smaller than any socket buffer, go to and
// fro.
class GreetingSocket : private Pollable {
 public:
  // `events`: EPOLLOUT for a socket that is still connecting, else EPOLLIN.
  GreetingSocket(Fd socket, unsigned events, Poller& poller);
  ~GreetingSocket() override;
  GreetingSocket(const GreetingSocket&) = delete;

  int fd() const { return socket_.get(); }
  // True if the poller has seen something since the last call. Sockets start out as seen.
  bool take_ready();
  void watch_input();
  // False if the connection is gone.
  bool send(std::string_view message);
  enum class Received { kNotYet, kAll, kGone };
  // Without reading it: whether anything is there, or the end.
  Received peek();
  // Collects up to `bytes` in received(), never reading further, so that what follows belongs to
  // the wire.
  Received receive(size_t bytes);
  const std::string& received() const { return received_; }
  void clear_received() { received_.clear(); }
  // Why the connection is gone.
  const std::string& cause() const { return cause_; }
  // Gives the socket away; the poller has forgotten it.
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

  // `socket`: connect() was called and is under way or done.
  OutgoingGreeting(Fd socket, const Identity& self, const Identity& target, size_t rail,
                   Poller& poller);

  State step();
  State state() const { return state_; }
  // In kVerified: this one has won.
  void commit();
  const std::string& cause() const { return cause_; }
  // In kWelcome.
  Fd release() { return socket_.release(); }
  // From kVerified on: what only the two ends know.
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

  // `heard`: by this process, on all connections; it must outlive this.
  IncomingGreeting(Fd socket, const Identity& self, HeardHellos& heard, Poller& poller);

  // In kCommitted it fails if the connector leaves, or says more than it may before it is welcome.
  State step();
  State state() const { return state_; }
  // In kFailed: why, and whether its hello was believed before.
  Refusal refusal() const { return refusal_; }
  bool was_believed() const { return !hosting_.peer_id().empty(); }
  // From kVerified on.
  const std::string& peer_id() const { return hosting_.peer_id(); }
  size_t rail() const { return hosting_.rail(); }
  // From kVerified on: what only the two ends know.
  Key session() const { return hosting_.session(); }
  // In kCommitted: tells the connector and gives the socket away; empty if the connection is gone.
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
