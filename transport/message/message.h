#pragma once
// What ranks send each other over a link: messages, which a tag identifies, and notices about calls
// and communicators.
#include <cstdint>
#include <string>

#include "device/device.h"
#include "device/reduce/reduce.h"
#include "transport/message/memory_owner.h"
#include "transport/message/pieces.h"

namespace hccl_like {

class Exports;
class PeerMemory;

// What a send and its receive have in common. Both ends compute it from the call alone, so no two
// messages that are under way between two processes share one.
struct Tag {
  uint64_t communicator = 0;
  uint32_t channel = 0;   // 0: collectives; else 0x80000000 | the user's tag of a point-to-point
                          // message
  uint32_t sequence = 0;  // the operation's number in its communicator (collectives) or on (peer,
                          // channel)
  uint32_t lap = 0;
  uint16_t round = 0;
  uint16_t occurrence = 0;  // several messages to one peer in one round
  friend bool operator==(const Tag&, const Tag&) = default;
};

// Where a peer on this host finds the memory of a message that lies in one piece.
struct SharedPlace {
  const ExportedRange* range = nullptr;  // null: nowhere. Borrowed as the message is
  // By which the peer's is opened here.
  const Device* device = nullptr;
  int index = 0;
  PeerMemory* memory = nullptr;
  Exports* exports = nullptr;  // which names `range`; null: peers open it for each message
  MemoryOwner owner{};         // of the memory, if it is a receive's
};

// A posted message. Owned by the caller, pinned in memory, and borrowed by the link until
// `*pending` was decremented for it or it was cancelled. `fingerprint` is a hash of the call
// (operation, type, sizes, root, ...): the receiver compares it with its own before it touches a
// buffer. post() resets what the link owns, so a Message may be posted again after it is done.
struct Message {
  Tag tag{};
  uint64_t fingerprint = 0;
  size_t bytes = 0;
  uint32_t* pending = nullptr;  // decremented once when the message is done
  SharedPlace place;  // of the whole message; the memory is its owner's again when it is done
  // Its memory is a device's (device/exported_memory.h), which prepare() has taken: nobody on the
  // host may touch it. It is longer than eager_bytes, or empty, and a send is one piece. If its way
  // fails take_mismatch() tells.
  bool device = false;
  // Takes only the short way: a Recv what comes unasked, a Send what the wire or the peer takes
  // without a further word. To be withdrawn if it is not done.
  bool caller_driven = false;
  size_t moved = 0;  // bytes so far; owned by the link
  // Set by the link with `pending`; tells a finished message without bytes from one that is not.
  bool done = false;
  uint8_t state = 0;  // owned by the link
};

struct Send : Message {
  Pieces from;
  PieceCursor at;  // owned by the link
};

// dst = incoming, or, with `combine`, dst = operand op incoming. Operand and destination may be the
// same memory.
struct Recv : Message {
  Pieces into;
  Pieces operand;
  Combine combine = nullptr;
  size_t element_bytes = 1;  // with combine: a power of two up to 4096; pieces hold whole elements
  bool beside =
      false;  // it asked for its message beside the wire; owned by the link, as what follows
  PieceCursor into_at;
  PieceCursor operand_at;
};

// Another rank gave up a communicator.
struct AbortNotice {
  uint64_t communicator = 0;
  std::string reason;
};

// What a rank says of the call that it is in.
struct CallNotice {
  Tag tag{};  // without lap, round and occurrence
  uint64_t fingerprint = 0;
  uint64_t bytes = 0;  // of its payload, for people
};

}  // namespace hccl_like
