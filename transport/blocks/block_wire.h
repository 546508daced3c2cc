#pragma once
// A Wire made of blocks that a message-passing library (MPI, libfabric) moves.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/blocks/block_channel.h"
#include "transport/wire/wire.h"

namespace hccl_like {

class BlockWire final : public Wire {
 public:
  // `ports`: as BlockChannel's. `transport` and `peer` are for messages.
  BlockWire(std::vector<std::unique_ptr<BlockPort>> ports, BlockShape shape,
            std::string_view transport, const std::string& peer, const CardTimes& times = {});
  // Over one card of a library that loses nothing.
  BlockWire(std::unique_ptr<BlockPort> port, BlockShape shape, std::string_view transport,
            const std::string& peer);
  // Sends a goodbye, and waits up to 200 ms for written bytes to leave.
  ~BlockWire() override;

  size_t write(std::span<const ConstRegion> pieces) override;
  std::span<const std::byte> peek(size_t want = 1) override;
  void release(size_t bytes) override;
  size_t read(std::span<std::byte> into) override;
  const Error* failure() const override;
  bool flush() override;
  bool owes() override { return !flush(); }
  bool prepare_sleep(WakeFor wake) override;
  void end_sleep() override;
  WireExtensions extensions() override {
    return {.remote_memory = memory_, .rails_changed = &channel_.rails_changed()};
  }
  // Whether `bytes` bytes are readable without a call into the library.
  bool holds(size_t bytes) const;
  BlockChannel& channel() { return channel_; }

 private:
  void progress();
  std::span<const std::byte> front() const;
  std::span<const std::byte> gather(size_t want);

  const std::string gone_;  // the beginning of an error
  BlockChannel channel_;
  RemoteMemory* const memory_;
  std::array<std::byte, 4096> gathered_;  // a peek that spans several blocks
  size_t want_ = 1;                       // of the last peek
  std::optional<Error> ended_;            // no byte can arrive any more
};

}  // namespace hccl_like
