#pragma once
// How two processes make sure of each other on a fresh connection, before either keeps anything for it.
//
//   connector                            acceptor
//   hello: who I am, whom I want,   ->   compares; closes without a word if anything is wrong
//          first half of its nonce
//   compares; closes if wrong       <-   answer: who I am, second half of my nonce
//   commit: this connection has     ->   takes the connection, unless it has one to this peer already
//          won the race
//   the wire exists                 <-   welcome
//
// A nonce stands only in the store. Whoever shows its first half has read the record of the process that he wants; who
// answers with the second half is that process, and not one that happens to own its address now. The last two messages
// make both ends agree which of several racing connections is the one: a connector that sees no welcome has no link, an
// acceptor that saw no commit has none.
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/deadline.h"
#include "core/fd.h"
#include "transport/poller.h"

namespace hccl_like {

inline constexpr size_t kIdDigits = 32;
inline constexpr size_t kNonceDigits = 64;
inline constexpr uint32_t kProtocolVersion = 1;

// Who this process is, and the secret that proves it.
struct Identity {
  std::string id;     // kIdDigits
  std::string nonce;  // kNonceDigits
};

// What is said. All fields are text, so there is no byte order to agree on.
namespace greeting {
std::string hello(const Identity& self, const Identity& target);
std::string answer(const Identity& self);
inline constexpr std::string_view kCommit = "hccl-like commit";
inline constexpr std::string_view kWelcome = "hccl-like welcome";
}  // namespace greeting

// A non-blocking socket on which messages of fixed size, smaller than any socket buffer, go to and fro.
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
  // Collects up to `bytes` in received(), never reading further, so that what follows belongs to the wire.
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

  // `socket`: connect() was called and is under way or done. Both identities must outlive this.
  OutgoingGreeting(Fd socket, const Identity& self, const Identity& target, Poller& poller);

  State step();
  State state() const { return state_; }
  // In kVerified: this one has won.
  void commit();
  const std::string& cause() const { return cause_; }
  // In kWelcome.
  Fd release() { return socket_.release(); }

 private:
  void on_connected();
  void on_answer();
  void on_welcome();
  void fail(std::string cause);

  GreetingSocket socket_;
  const Identity& self_;
  const Identity& target_;
  State state_ = State::kConnecting;
  std::string cause_;
};

// The acceptor's end.
class IncomingGreeting {
 public:
  enum class State { kWaiting, kVerified, kCommitted, kFailed };

  IncomingGreeting(Fd socket, const Identity& self, Poller& poller);

  State step();
  State state() const { return state_; }
  // From kVerified on.
  const std::string& peer_id() const { return peer_id_; }
  // In kCommitted: tells the connector and gives the socket away; empty if the connection is gone.
  Fd welcome();

  const std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

 private:
  void on_hello();

  GreetingSocket socket_;
  const Identity& self_;
  std::string peer_id_;
  State state_ = State::kWaiting;
};

}  // namespace hccl_like
