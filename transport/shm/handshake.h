#pragma once
// Turns a connected UNIX stream socket into a ShmWire.
//
//   connector                                   acceptor
//   makes the memory
//   offer: ring size +
//   memory, doorbell, commons             ->    checks and maps it
//   the wire exists                       <-    reply: well or why not + doorbell, commons
//
// Whoever has no Commons leaves it out.
//
// Both ends first make sure that the other process belongs to the same user. Who it is beyond that
// (its nonce) is settled on the socket before a handshake begins.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/fd.h"
#include "transport/same_host/commons.h"
#include "transport/shm/fd_message.h"
#include "transport/shm/segment.h"
#include "transport/wire/poller.h"
#include "transport/wire/wire.h"

namespace hccl_like {

// Nothing blocks and nothing throws. Used by one thread at a time.
class ShmHandshake final : private Pollable {
 public:
  enum class Side { kConnector, kAcceptor };

  // The connector's ring_bytes, rounded, hold for both; the acceptor's are ignored. Both the
  // handshake and the wire are woken through `poller`, which must outlive them.
  // So must `commons`, which may be null: what this process shows to its peers.
  ShmHandshake(Fd socket, Side side, size_t ring_bytes, Poller& poller,
               const Commons* commons = nullptr);
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
  // False if it cannot be done now, or if the handshake has failed.
  bool send(std::span<const std::byte> bytes, std::vector<int> fds);
  bool receive(std::span<std::byte> bytes, std::vector<Fd>& fds);
  bool take_fds(std::span<Fd> fds);
  void finish();
  void fail(std::string cause);

  Fd socket_;
  const Side side_;
  const size_t ring_bytes_;
  Poller& poller_;
  State state_;
  std::optional<ShmSegment> segment_;
  const Commons* const own_commons_;
  Fd doorbell_;  // of the peer
  std::unique_ptr<PeerCommons> commons_;
  int refusal_ = 0;
  std::unique_ptr<Wire> wire_;
  std::string cause_;
};

}  // namespace hccl_like
