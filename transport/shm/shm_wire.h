#pragma once
// A wire to a process on the same host, over shared memory.
#include <memory>
#include <optional>

#include "core/base/fd.h"
#include "transport/same_host/commons.h"
#include "transport/shm/segment.h"
#include "transport/wire/poller.h"
#include "transport/wire/wire.h"

namespace hccl_like {

// What a ShmHandshake agreed on.
struct ShmEnd {
  int side;   // 0: connector, 1: acceptor
  Fd socket;  // stays open: its end tells that the peer is gone
  ShmSegment segment;
  Fd doorbell;                           // of the peer's poller
  std::unique_ptr<PeerCommons> commons;  // of the peer; null if it shows none
};

// Data never goes through the kernel. A sleeping peer is woken through its doorbell. The peer's
// death is noticed, by the poller, as the end of the socket, or of the process itself: a forked
// child of the peer may hold the socket open.
class ShmWire final : public Wire {
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
  // A cache line: a copy from or to the middle of one takes up to twice as long.
  size_t alignment() const override { return 64; }
  Workspace workspace() override {
    return {segment_.workspace(side_), segment_.workspace(1 - side_), segment_.memory()};
  }
  const PeerCommons* commons() const override { return commons_.get(); }
  void nudge() override;
  std::string_view transport() const override { return "shm"; }

 private:
  // Whatever happens to what it watches, the peer is gone: nothing is sent on the socket.
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
  Fd process_;  // a pidfd, if the peer's process can be seen from here
  Fd doorbell_;
  std::unique_ptr<PeerCommons> commons_;
  ShmSegment segment_;
  RingWriter writer_;
  mutable RingReader reader_;
  size_t made_ = 0;         // bytes of the ring that is written
  bool no_memory_ = false;  // for more of it
  size_t want_ = 1;         // of the last peek
  Lifeline lifeline_{*this};
  std::optional<Error> gone_;
};

}  // namespace hccl_like
