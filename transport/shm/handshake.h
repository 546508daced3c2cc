#pragma once
// Turns a connected UNIX stream socket into a ShmWire.
//
//   connector                                   acceptor
//   makes the memory
//   offer: ring size + memory, doorbell   ->    checks and maps it
//   the wire exists                       <-    reply: well or why not + doorbell
//
// Both ends first make sure that the other process belongs to the same user. Who it is beyond that
// (its nonce) is settled on the socket before a handshake begins.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fd.h"
#include "transport/poller.h"
#include "transport/shm/segment.h"
#include "transport/wire.h"

namespace hccl_like {

// Nothing blocks and nothing throws. Used by one thread at a time.
class ShmHandshake final : private Pollable {
 public:
  enum class Side { kConnector, kAcceptor };

  // The connector's ring_bytes, rounded, hold for both; the acceptor's are ignored. Both the
  // handshake and the wire are woken through `poller`, which must outlive them.
  ShmHandshake(Fd socket, Side side, size_t ring_bytes, Poller& poller);
  ~ShmHandshake() override;
  ShmHandshake(const ShmHandshake&) = delete;
  ShmHandshake& operator=(const ShmHandshake&) = delete;

  // Goes on as far as it can; true when it is over, well or not. Call it again when the poller has
  // seen something.
  bool step();
  // After step() said true: the wire, or null if it failed; then cause() is a sentence.
  std::unique_ptr<Wire> take();
  const std::string& cause() const { return cause_; }

 private:
  enum class State { kOffering, kWaiting, kReplying, kDone, kFailed };

  void ready(unsigned) override {}
  void next();
  void check_peer();
  void offer();
  void receive_offer();
  void receive_reply();
  void reply();
  void finish(Fd doorbell);
  void fail(std::string cause);

  Fd socket_;
  const Side side_;
  const size_t ring_bytes_;
  Poller& poller_;
  State state_;
  std::optional<ShmSegment> segment_;
  Fd doorbell_;  // of the peer
  int refusal_ = 0;
  std::unique_ptr<Wire> wire_;
  std::string cause_;
};

}  // namespace hccl_like
