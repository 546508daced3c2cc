#pragma once
// A Wire made of blocks that a message-passing library (MPI, libfabric) moves.
//
// Flow control by credits: receives are posted before anything can arrive, and a sender never has
// more blocks in flight than the receiver has posted. The sender starts with one credit per block
// and gets a credit back for every block read. Credits travel on blocks of the other direction or,
// once half of them are owed, alone. The library thus never buffers unexpected messages.
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/blocks/block_port.h"
#include "transport/wire/wire.h"

namespace hccl_like {

class BlockWire final : public Wire, private BlockSink {
 public:
  // `transport` and `peer` are for messages. Posts the receives.
  BlockWire(std::unique_ptr<BlockPort> port, BlockShape shape, std::string_view transport,
            std::string peer);
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
  WireExtensions extensions() override { return {.remote_memory = port_->remote_memory()}; }
  // Whether `bytes` bytes are readable without a call into the library.
  bool holds(size_t bytes) const { return arrived_bytes_ >= bytes; }

 private:
  enum class Kind : uint32_t { kBytes, kCredits, kGoodbye };
  struct Header {
    uint32_t bytes;  // of payload
    uint32_t credits;
    Kind kind;
    uint32_t reserved;
  };
  struct Arrival {
    size_t slot;
    size_t begin, end;  // unread payload in the slot
  };

  void sent(size_t slot) override;
  void arrived(size_t slot) override;
  void progress();
  bool owes_credits() const { return owed_ >= shape_.blocks / 2; }
  void return_credits();
  void send(size_t slot, Kind kind, size_t payload);
  std::span<const std::byte> front() const;
  std::span<const std::byte> gather(size_t want);
  void fail(std::string why);

  const std::unique_ptr<BlockPort> port_;
  const BlockShape shape_;
  const std::string peer_;

  std::vector<size_t> free_slots_;  // free send slots
  size_t credits_;                  // payload blocks that the peer has room for
  size_t owed_ = 0;                 // credits not returned to the peer yet

  std::deque<Arrival> arrivals_;
  size_t arrived_bytes_ = 0;
  std::array<std::byte, 4096> gathered_;  // a peek that spans several blocks
  size_t want_ = 1;                       // of the last peek
  std::optional<Error> ended_;            // no byte can arrive any more
};

}  // namespace hccl_like
