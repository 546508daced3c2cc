#pragma once
// One message between two ranks of a host, which the receiver's device reads out of the sender's
// memory.
#include <cstdint>
#include <memory>

#include "collectives/engine/communicator.h"
#include "collectives/stream/shown_memory.h"
#include "device/device.h"

namespace hccl_like {

// The first operation shows the receiver where the memory is; a byte in the other direction answers
// whether the receiver has read it. If not, the payload follows in slices: prepare_slice() with
// first() and slice_number(). One thread at a time.
class StreamMessage {
 public:
  // Whether the device and the group can do this: equal on all ranks whose devices are alike. Ranks
  // of several hosts cannot, because a receive from any source does not know its sender's host.
  static bool may_serve(const Device& device, const Hosts& hosts, const CallPathOptions& options);

  // Takes the message's number. The memory stays valid until move() returns. `stream`: of the
  // device, for the copy; 0: this rank does not read or show memory. Throws as prepare().
  StreamMessage(std::shared_ptr<Communicator> communicator, const Device& device, int index,
                hcd_stream stream, Call call, DeviceRange memory);

  const std::shared_ptr<Operation>& first() const { return first_; }
  static uint32_t slice_number(size_t slice) { return static_cast<uint32_t>(slice) + 1; }
  // For a rank that neither reads nor shows memory: launch this with first() instead of move(). A
  // receive must name its source.
  std::shared_ptr<Operation> refusal();
  // Waits until the message has moved, behind all work before the call. False if it is left to
  // slices or the group has failed.
  bool move();

 private:
  struct Record {
    ShownMemory memory;
    uint64_t able = 0;
  };

  bool sends() const { return call_.collective == Collective::kSend; }
  bool read(const Record& told, int source);
  std::shared_ptr<Operation> answer(int peer);
  bool run(const std::shared_ptr<Operation>& operation) const;

  const std::shared_ptr<Communicator> communicator_;
  const Device& device_;
  const int index_;
  const hcd_stream stream_;
  const Call call_;
  const DeviceRange memory_;
  Record record_;
  uint8_t moved_ = 0;
  std::shared_ptr<Operation> first_;
};

}  // namespace hccl_like
