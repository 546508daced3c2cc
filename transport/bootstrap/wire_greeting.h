#pragma once
// Runs the handshake of security/greeting.h over a fresh wire of a Transport. Transports need no
// authentication of their own, and a wire that does not reach the peer is detected.
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

  // `target`: the only process accepted at the other end.
  WireGreeting(std::unique_ptr<Wire> wire, WireSide side, const Identity& self,
               const Identity& target);

  State step();
  // After kDone. take() returns the wire positioned after the handshake.
  Key session() const;
  std::unique_ptr<Wire> take() { return std::move(wire_); }
  Wire& wire() { return *wire_; }
  // In kFailed: the error. In kUnderWay: the awaited message.
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
  int heard_ = 0;         // messages received
  std::string outgoing_;  // not written yet
  std::string cause_;
};

}  // namespace hccl_like
