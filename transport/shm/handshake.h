#pragma once
// Turns a connected UNIX stream socket into a ShmWire.
//
//   connector                                   acceptor
//   creates the segment
//   offer: ring size + fds of
//   segment, doorbell, commons            ->    validates and maps it
//   the wire exists                       <-    reply: errno or 0 + fds of doorbell, commons
//
// A process without Commons omits that descriptor. Both ends check that the peer has the same user
// id. The peer's identity (its nonce) is verified on the socket before the handshake.
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

// No method blocks or throws. Used by one thread at a time.
class ShmHandshake final : private Pollable {
 public:
  enum class Side { kConnector, kAcceptor };

  // The connector's ring_bytes, rounded, apply to both ends. `poller` drives the handshake and the
  // wire. `commons` (may be null) is this process's. Both must outlive handshake and wire.
  ShmHandshake(Fd socket, Side side, size_t ring_bytes, Poller& poller,
               const Commons* commons = nullptr);
  ~ShmHandshake() override;
  ShmHandshake(const ShmHandshake&) = delete;
  ShmHandshake& operator=(const ShmHandshake&) = delete;

  // Advances without blocking. True when finished, successfully or not. Repeat after poller events.
  bool step();
  // After step() returned true: the wire, or null with the reason in cause().
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
  // False if not possible now, or after a failure.
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
