#pragma once
// A Wire made of blocks that a message-caller-driven library (MPI, libfabric) moves.
//
// Receives are posted before anything can arrive, and a sender never has more blocks under way than
// the receiver has posted for it: it starts with a credit for each, and gets one back with every
// block that was read. Credits travel on blocks that go the other way, or, when half of them are
// owed, alone. So nothing is buffered where nobody counts it.
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
  // `transport` and `peer` are for people, and `transport` must outlive it. Posts its receives.
  BlockWire(std::unique_ptr<BlockPort> port, BlockShape shape, std::string_view transport,
            std::string peer);
  // Tells the peer, and gives what was written a moment to leave.
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
  RemoteMemory* remote_memory() const override { return port_->remote_memory(); }
  std::string_view transport() const override { return transport_; }
  // So many bytes have arrived and can be read, without asking the library again.
  bool holds(size_t bytes) const { return arrived_bytes_ >= bytes; }

 private:
  enum class Kind : uint32_t { kBytes, kCredits, kGoodbye };
  struct Header {
    uint32_t bytes;  // of payload
    uint32_t credits;
    Kind kind;
    uint32_t reserved;
  };
  // A block that has arrived and was not read to its end.
  struct Arrival {
    size_t slot;
    size_t begin, end;  // of its payload not read yet, in the slot
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
  const std::string_view transport_;
  const std::string peer_;

  std::vector<size_t> free_slots_;  // to send with
  size_t credits_;                  // blocks with payload that the peer has room for
  size_t owed_ = 0;                 // credits that it has not got back yet

  std::deque<Arrival> arrivals_;
  size_t arrived_bytes_ = 0;
  std::array<std::byte, 4096> gathered_;  // what a peek wants of several blocks
  size_t want_ = 1;                       // of the last peek
  std::optional<Error> ended_;            // nothing more can arrive
};

}  // namespace hccl_like
