#pragma once
// Tagged messages and notices that ranks exchange over a link.
#include <cstdint>
#include <string>

#include "device/device.h"
#include "device/reduce/reduce.h"
#include "transport/message/memory_owner.h"
#include "transport/message/pieces.h"

namespace hccl_like {

class Exports;
class PeerMemory;

// Matches a send with its receive. Both ranks compute the tag from the call alone. Tags are unique
// among the messages in flight between two processes.
struct Tag {
  uint64_t communicator = 0;
  uint32_t channel = 0;   // 0: collectives; else 0x80000000 | user tag of a point-to-point message
  uint32_t sequence = 0;  // of the operation, in its communicator or on (peer, channel)
  uint32_t slice = 0;
  uint16_t round = 0;
  uint16_t occurrence = 0;  // distinguishes messages to one peer in one round
  friend bool operator==(const Tag&, const Tag&) = default;
};

// The place at which a local peer finds the memory of a message that is one piece.
struct SharedPlace {
  const ExportedRange* range = nullptr;  // null: not shareable. Borrowed like the message
  // The device that opens the peer's memory in this process.
  const Device* device = nullptr;
  int index = 0;
  PeerMemory* memory = nullptr;
  Exports* exports = nullptr;  // names `range`; null: peers open it for each message
  MemoryOwner owner{};         // of a receive's memory
};

// A posted message. The caller owns it and keeps it at its address. The link borrows it until
// `*pending` is decremented or the message is cancelled. The receiver compares `fingerprint`, a
// hash of the call (operation, type, sizes, root, ...), with its own before it writes to a buffer.
// post() resets the fields of the link, so a finished Message may be posted again.
struct Message {
  Tag tag{};
  uint64_t fingerprint = 0;
  size_t bytes = 0;
  uint32_t* pending = nullptr;  // decremented once when the message is done
  SharedPlace place;            // of the whole message; borrowed until the message is done
  // The memory is device memory (device/exported_memory.h), accepted by prepare(): host code must
  // not access it. The message is longer than eager_bytes, or empty, and a send is one piece. If
  // the transfer fails, take_mismatch() reports it.
  bool device = false;
  // Only the eager path, no request to the peer: a Recv takes data that arrives unasked, a Send
  // what the wire or the peer accepts at once. Must be withdrawn if it does not complete.
  bool caller_driven = false;
  size_t moved = 0;  // bytes so far; owned by the link
  // Set by the link together with `pending`. Marks completion also for empty messages.
  bool done = false;
  uint8_t state = 0;  // owned by the link
};

struct Send : Message {
  Pieces from;
  PieceCursor at;  // owned by the link
};

// dst = incoming or, with `combine`, dst = operand op incoming. `operand` and `into` may alias.
struct Recv : Message {
  Pieces into;
  Pieces operand;
  Combine combine = nullptr;
  size_t element_bytes = 1;  // with combine: a power of two up to 4096; pieces hold whole elements
  bool beside = false;       // zero-copy was requested; owned by the link, like all below
  PieceCursor into_at;
  PieceCursor operand_at;
};

// Another rank aborted a communicator.
struct AbortNotice {
  uint64_t communicator = 0;
  std::string reason;
};

// The call that a rank is in.
struct CallNotice {
  Tag tag{};  // without slice, round and occurrence
  uint64_t fingerprint = 0;
  uint64_t bytes = 0;  // payload size, for error messages
};

}  // namespace hccl_like
