#pragma once
// How two processes make sure of each other on a fresh wire of a Transport: the greeting of
// security/greeting.h, carried by the wire itself. So a transport need not know about it, and a
// wire that does not reach the peer is noticed.
#include <memory>
#include <string>
#include <variant>

#include "transport/security/greeting.h"
#include "transport/wire/transport.h"

namespace hccl_like {

// Used by one thread at a time; nothing blocks.
class WireGreeting {
 public:
  enum class State { kUnderWay, kDone, kFailed };

  // `target` is the one process that may be at the other end.
  WireGreeting(std::unique_ptr<Wire> wire, WireSide side, const Identity& self,
               const Identity& target);

  State step();
  // After kDone: the wire, at the first byte that is not the greeting's.
  // What only the two ends know.
  Key session() const;
  std::unique_ptr<Wire> take() { return std::move(wire_); }
  const Wire& wire() const { return *wire_; }
  // Why it failed; in kUnderWay, what is waited for.
  std::string cause() const;

 private:
  void push();
  bool take_text(size_t bytes, std::string& text);
  bool advance();
  bool hear(const std::string& text);
  size_t expected_bytes() const;
  void say(std::string text);
  void fail(std::string cause);

  std::unique_ptr<Wire> wire_;
  const WireSide side_;
  const std::string peer_id_;
  std::variant<greeting::Calling, greeting::Hosting> voice_;
  State state_ = State::kUnderWay;
  int heard_ = 0;         // messages of the peer
  std::string outgoing_;  // what the wire has not taken yet
  std::string cause_;
};

}  // namespace hccl_like
