#pragma once
// A wire to a process on the same host, over shared memory.
#include <memory>
#include <optional>

#include "core/base/fd.h"
#include "transport/same_host/commons.h"
#include "transport/shm/segment.h"
#include "transport/wire/poller.h"
#include "transport/wire/same_host_peer.h"
#include "transport/wire/wire.h"

namespace hccl_like {

struct ShmEnd {
  int side;   // 0: connector, 1: acceptor
  Fd socket;  // stays open: its end means the loss of the peer
  ShmSegment segment;
  Fd doorbell;                           // of the peer's poller
  std::unique_ptr<PeerCommons> commons;  // of the peer; null if none
};

// Data bypass the kernel. A doorbell wakes a sleeping peer. The poller detects the peer's death by
// the end of the socket or, since a forked child may hold the socket open, of the process.
class ShmWire final : public Wire, public SameHostPeer {
 public:
  ShmWire(ShmEnd end, Poller& poller);
  ~ShmWire() override;

  size_t write(std::span<const ConstRegion> pieces) override;
  std::span<const std::byte> peek(size_t want) override;
  void release(size_t bytes) override;
  size_t read(std::span<std::byte> into) override;
  const Error* failure() const override;
  bool flush() override { return true; }
  bool prepare_sleep(WakeFor wake) override;
  void end_sleep() override;
  WireExtensions extensions() override { return {.same_host = this}; }
  Workspace workspace() override {
    return {segment_.workspace(side_), segment_.workspace(1 - side_), segment_.memory()};
  }
  const PeerCommons* commons() const override { return commons_.get(); }
  void nudge() override;

 private:
  // Any event means the loss of the peer: the socket carries no data.
  struct Lifeline final : Pollable {
    explicit Lifeline(ShmWire& of) : wire(of) {}
    void ready(unsigned) override { wire.lose(); }
    ShmWire& wire;
  };

  void watch_process();
  void lose();
  bool make_ring(uint64_t end);
  void publish_written();
  void publish_read();

  Poller& poller_;
  const int side_;
  Fd socket_;
  Fd process_;  // a pidfd, if the peer's process is visible
  Fd doorbell_;
  std::unique_ptr<PeerCommons> commons_;
  ShmSegment segment_;
  RingWriter writer_;
  mutable RingReader reader_;
  size_t made_ = 0;         // allocated bytes of the outgoing ring
  bool no_memory_ = false;  // no more ring memory available
  size_t want_ = 1;         // of the last peek
  Lifeline lifeline_{*this};
  std::optional<Error> gone_;
};

}  // namespace hccl_like
