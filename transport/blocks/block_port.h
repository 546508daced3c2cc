#pragma once
// Interface of a message-passing library (MPI, libfabric) for a BlockChannel: ordered blocks to one
// peer over one network card.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hccl_like {

class RemoteMemory;

// The port calls these functions inside its progress() only.
class BlockSink {
 public:
  // The library needs the send slot no longer, whether the block has left or is lost.
  virtual void sent(size_t slot) = 0;
  // The oldest posted receive slot is filled.
  virtual void arrived(size_t slot) = 0;

 protected:
  ~BlockSink() = default;
};

// One peer. Used by one thread at a time; nothing blocks. Sends arrive in posting order and fill
// the receive slots in posting order.
class BlockPort {
 public:
  virtual ~BlockPort() = default;
  BlockPort() = default;
  BlockPort(const BlockPort&) = delete;
  BlockPort& operator=(const BlockPort&) = delete;

  // Slot memory: constant per slot, aligned to 64 bytes.
  virtual std::span<std::byte> send_slot(size_t slot) = 0;
  virtual std::span<std::byte> receive_slot(size_t slot) = 0;

  // Sends the first `bytes` of a slot, now or in a later progress(), in posting order.
  virtual void send(size_t slot, size_t bytes) = 0;
  virtual void receive(size_t slot) = 0;
  virtual void progress(BlockSink& sink) = 0;
  // The reason why blocks are lost; empty if all of them arrive.
  virtual const std::string& broken() const = 0;
  // Lets a broken port send again: broken() is empty afterwards. False if the port cannot.
  virtual bool mend() { return false; }
  // Whether the next progress() has an arrival to report. Makes no library call.
  virtual bool has_arrivals() const { return false; }
  // As Wire's: false if progress() would, or might, find something.
  virtual bool prepare_sleep() = 0;
  virtual void end_sleep() = 0;
  // As Wire's.
  virtual RemoteMemory* remote_memory() const { return nullptr; }
  // The network card, for logs: "mlx5_0".
  virtual std::string card() const { return ""; }
};

struct BlockShape {
  size_t blocks = 8;  // unconfirmed blocks with payload, each way
  size_t block_bytes = 64 << 10;
  // At most two blocks of confirmations and one goodbye are in flight besides.
  size_t slots() const { return blocks + 3; }
};

}  // namespace hccl_like
