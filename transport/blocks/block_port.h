#pragma once
// What a message-caller-driven library has to do for a BlockWire: move blocks of memory to one
// peer, in order.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hccl_like {

class RemoteMemory;

// Told by the port, inside its progress() only.
class BlockSink {
 public:
  // The send slot may be used again.
  virtual void sent(size_t slot) = 0;
  // The oldest receive slot that was posted and not yet reported has been filled.
  virtual void arrived(size_t slot) = 0;

 protected:
  ~BlockSink() = default;
};

// One peer. Used by one thread at a time; nothing blocks. Sends arrive in the order of their
// posting, and fill the receive slots in the order of theirs.
class BlockPort {
 public:
  virtual ~BlockPort() = default;
  BlockPort() = default;
  BlockPort(const BlockPort&) = delete;
  BlockPort& operator=(const BlockPort&) = delete;

  // Slot memory: the same bytes for each, aligned to 64.
  virtual std::span<std::byte> send_slot(size_t slot) = 0;
  virtual std::span<std::byte> receive_slot(size_t slot) = 0;

  // Sends the first `bytes` of a slot. What cannot start now is kept and started by progress(), in
  // order.
  virtual void send(size_t slot, size_t bytes) = 0;
  virtual void receive(size_t slot) = 0;
  virtual void progress(BlockSink& sink) = 0;
  // Why the peer cannot be reached any more; empty while it can.
  virtual const std::string& broken() const = 0;
  // As Wire's: false if progress() would find something, or might.
  virtual bool prepare_sleep() = 0;
  virtual void end_sleep() = 0;
  // As Wire's.
  virtual RemoteMemory* remote_memory() const { return nullptr; }
};

// How many slots of each kind a BlockWire uses of a port, and how large.
struct BlockShape {
  size_t blocks = 8;  // with payload under way, each way
  size_t block_bytes = 64 << 10;
  // Two blocks of credits alone can be under way beside them, and a last word.
  size_t slots() const { return blocks + 3; }
};

}  // namespace hccl_like
