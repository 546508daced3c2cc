#pragma once
// Blocks as tagged libfabric messages to one peer.
#include <deque>
#include <memory>
#include <string>

#include "transport/blocks/block_port.h"
#include "transport/fabric/fabric_end.h"
#include "transport/wire/poller.h"
#include "transport/wire/remote_memory.h"

namespace hccl_like {

class FabricPort final : public BlockPort {
 public:
  // Poller and endpoint must outlive this object.
  FabricPort(Poller& poller, BlockShape shape, std::shared_ptr<FabricPeer> peer, uint64_t send_tag,
             uint64_t receive_tag);
  ~FabricPort() override;

  std::span<std::byte> send_slot(size_t slot) override { return at(*sends_, slot); }
  std::span<std::byte> receive_slot(size_t slot) override { return at(*receives_, slot); }
  void send(size_t slot, size_t bytes) override;
  void receive(size_t slot) override;
  void progress(BlockSink& sink) override;
  const std::string& broken() const override;
  bool mend() override;
  bool has_arrivals() const override {
    return !receiving_.empty() && receives_->operations[receiving_.front()].done;
  }
  bool prepare_sleep() override { return true; }
  void end_sleep() override {}
  // Sets the result of remote_memory().
  void add_memory(std::unique_ptr<RemoteMemory> memory) { memory_ = std::move(memory); }
  RemoteMemory* remote_memory() const override { return memory_.get(); }
  std::string card() const override { return end_.info().domain_attr->name; }

 private:
  struct Posted {
    size_t slot;
    size_t bytes;
  };
  std::span<std::byte> at(FabricSlots& slots, size_t slot) const {
    return {slots.memory[slot * shape_.block_bytes / sizeof(FabricSlots::Line)].bytes,
            shape_.block_bytes};
  }
  // Whether the endpoint was closed: its operations have ended without completions.
  bool lost_endpoint() const { return !end_.is_open() || end_.opening() != opening_; }
  void start();
  bool started(FabricSlots& slots, size_t slot, long status);

  const std::shared_ptr<FabricPeer> peer_;
  FabricEnd& end_;
  Poller& poller_;
  const BlockShape shape_;
  const uint64_t send_tag_, receive_tag_;
  uint64_t opening_;  // the number of the endpoint's opening that operations were given to
  std::unique_ptr<FabricSlots> sends_, receives_;
  std::deque<Posted> to_send_, sending_;  // not started; in flight; oldest first
  std::deque<size_t> to_receive_, receiving_;
  std::unique_ptr<RemoteMemory> memory_;
};

}  // namespace hccl_like
