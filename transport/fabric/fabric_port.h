#pragma once
// Blocks as tagged messages of libfabric to one peer.
#include <deque>
#include <memory>
#include <string>

#include "transport/blocks/block_port.h"
#include "transport/fabric/fabric_end.h"
#include "transport/poller.h"

namespace hccl_like {

class FabricPort final : public BlockPort {
 public:
  // Takes the peer's entry in the end's table of addresses over. All must outlive it.
  FabricPort(FabricEnd& end, Poller& poller, BlockShape shape, fi_addr_t peer, uint64_t send_tag,
             uint64_t receive_tag);
  ~FabricPort() override;

  std::span<std::byte> send_slot(size_t slot) override { return at(*sends_, slot); }
  std::span<std::byte> receive_slot(size_t slot) override { return at(*receives_, slot); }
  void send(size_t slot, size_t bytes) override;
  void receive(size_t slot) override;
  void progress(BlockSink& sink) override;
  const std::string& broken() const override;
  bool prepare_sleep() override { return true; }
  void end_sleep() override {}

 private:
  struct Posted {
    size_t slot;
    size_t bytes;
  };
  std::span<std::byte> at(FabricSlots& slots, size_t slot) const {
    return {slots.memory[slot * shape_.block_bytes / sizeof(FabricSlots::Line)].bytes,
            shape_.block_bytes};
  }
  void start();
  bool started(FabricSlots& slots, size_t slot, long status);

  FabricEnd& end_;
  Poller& poller_;
  const BlockShape shape_;
  const fi_addr_t peer_;
  const uint64_t send_tag_, receive_tag_;
  std::unique_ptr<FabricSlots> sends_, receives_;
  std::deque<Posted> to_send_, sending_;  // not started; under way; oldest first
  std::deque<size_t> to_receive_, receiving_;
};

}  // namespace hccl_like
