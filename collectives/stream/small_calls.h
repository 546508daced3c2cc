#pragma once
// All-reductions of little data by ranks of one host: one kernel of each rank's device.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/call/device_call.h"
#include "collectives/engine/communicator.h"
#include "collectives/stream/device_reductions.h"
#include "collectives/stream/shared_words.h"
#include "collectives/stream/shown_memory.h"

namespace hccl_like {

// The calls of a group on a device have one area (hcd_small_group), and are made one after the
// other in the same order on all ranks. While the ranks show each other their areas, the host makes
// the calls: the first kByHost. The engine watches a call by a thread of this object, which wakes
// it when a kernel begins or ends. One thread at a time calls takes_next() and queue().
class SmallCalls {
 public:
  static constexpr uint64_t kByHost = 32;

  // Whether the device can, the ranks share a host, and no setting is against it: equal on all
  // ranks whose devices are alike.
  static bool may_serve(const Device& device, const Hosts& hosts, const CallPathOptions& options);

  // Takes a number of the group, of an exchange that precedes `first`, which is the next call. Both
  // devices outlive this object. `like`: a stream of the device. Does not wait for other ranks.
  // Throws kDevice or kSystem.
  SmallCalls(std::shared_ptr<Communicator> communicator, const Device& device, int index,
             const Device& host, hcd_stream like, Call first);
  // Waits a little until no kernel of the group uses this rank's area, or else keeps the area.
  ~SmallCalls();
  SmallCalls(const SmallCalls&) = delete;
  SmallCalls& operator=(const SmallCalls&) = delete;

  // Whether a kernel makes the group's next small call: alike on all ranks. Waits once, in call
  // kByHost, until all ranks have made the first one.
  bool takes_next(const Call& call);
  // Queues that call behind the stream's work, and launches the operation that watches it. Of the
  // layouts, only the sizes matter. Throws as Communicator::prepare(), or kDevice: other ranks then
  // wait for this one.
  std::shared_ptr<Operation> queue(Call call, DeviceRange input, DeviceRange output,
                                   hcd_stream stream);

 private:
  // The block of words. From kProgress on, by rank: twice the calls that it has completed, plus one
  // while it makes another. Each rank writes its own progress to all blocks.
  enum Word : size_t { kState, kStop, kCompleted, kProgress };
  static constexpr size_t kWords =
      SharedWords::kGrain * (1 + (kProgress + HCD_SMALL_RANKS - 1) / SharedWords::kGrain);
  class Watched;

  void run();
  bool meet();
  bool reach(int peer, const std::byte* record);
  void watch();
  bool tell_progress();
  uint64_t load(Word word) const;
  void store(SharedWords::Word* word, uint64_t value) const;
  uint64_t begun(int rank) const;
  bool all_completed(uint64_t calls) const;

  const std::shared_ptr<Communicator> communicator_;
  const Device& device_;
  const int index_;
  const DeviceStream stream_;  // for the area and trials alone
  SharedWords words_;
  DeviceReductions reductions_;
  MappedRange area_;
  std::vector<hcd_ref> areas_;  // by rank
  std::vector<PeerMemory::Mapping> held_;
  std::vector<std::byte> records_;
  std::shared_ptr<Operation> exchange_;
  uint64_t by_host_ = 0;  // small calls so far, up to kByHost

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  enum class Ready { kUnknown, kYes, kNo } ready_ = Ready::kUnknown;
  bool stopping_ = false;
  std::atomic<uint64_t> queued_{0};  // calls by kernels
  std::thread thread_;
};

}  // namespace hccl_like
