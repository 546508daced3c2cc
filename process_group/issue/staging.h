#pragma once
// Large calls on a device whose memory host code cannot address, lap by lap: while one lap is on
// the network, the next is copied from the device and the last one back to it.
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "process_group/calls/laps.h"
#include "process_group/device/devices.h"
#include "process_group/device/plugin_streams.h"
#include "process_group/issue/pending.h"
#include "process_group/staging/device_laps.h"
#include "process_group/staging/device_side.h"
#include "process_group/staging/staging_memory.h"

namespace hccl_like {

// Of one group and one device. Three threads, each with one stage: copy a lap to staging
// memory; launch its operation and wait for it, which is to drive the engine; copy it back. All go
// through the calls in the order in which they were launched. A copy blocks its thread until it is
// done, so nothing is asked of the device but copies; each copying thread has a CopyQueue.
//
// Laps that network cards can move between the memories of devices are not copied (device_laps.h):
// the first stage only waits for the caller's stream, and the last only ends the call.
//
// In stream order the first copy waits for the caller's stream, which later waits for the last.
// Nobody can be told of a failure there: then the call's outputs are spoilt.
//
// Staging memory is a ring of a few laps, the best that the device can have, allocated once for all
// calls of the group.
//
// Where a copy of a part costs the device about as much as one of all (copy_costs.h), the first lap
// copies everything in, to memory of the call's own, and the last copies everything out. The
// operations are the same: which way a rank copies is its own decision, and no other rank can tell.
class Staging {
 public:
  // The first two outlive this. `most`: bytes of a lap, on each side. Throws kSystem if there are
  // no threads to be had.
  Staging(Devices& devices, const DeviceAccess& access, size_t most);
  // All calls that were issued must be over. Joins the threads.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  class Call;
  // Prepares the operations of all laps, so that they have the numbers of this moment, and gives
  // them to `pending`, which also holds the request's tensors for as long as they are needed; the
  // copies come after what the caller's current stream has queued by then. In stream order
  // `pending` is given the copies back, too. Throws what Communicator::prepare() throws. The calls
  // of one Staging are prepared and launched one after the other, in one order: under a lock of the
  // caller's. Before the first is launched several may be prepared, which `pending` then expects.
  std::shared_ptr<Call> prepare(const Request& request, const Laps& laps,
                                std::chrono::milliseconds timeout,
                                const std::shared_ptr<Communicator>& communicator,
                                std::shared_ptr<Pending> pending);
  // Starts what was prepared, in the same order. Does not block.
  void launch(std::shared_ptr<Call> call);
  // Whether anything that was prepared is not over. Under the same lock.
  bool busy();

 private:
  // Laps in flight: one in each of the three stages, and one that is ready for the slowest.
  static constexpr size_t kSlots = 4;
  struct Slot {
    StagingMemory input, output;  // undefined until used
  };
  struct Lap {
    Part part;
    Slot* slot = nullptr;
    std::vector<std::shared_ptr<Operation>> operations;  // which may wait for each other
    std::vector<LapRole> roles;                          // of each
    bool direct = false;  // network cards move it, and nothing is staged
    bool launched = false;
  };

  enum Stage : size_t { kCopyIn, kNetwork, kCopyOut, kStages };

  void run(Stage stage);
  void find_direct(Call& call, auto&& queue, auto&& start);
  void await_queues();
  void stop();
  std::shared_ptr<Call> next(Stage stage);
  // Until the stage before it is done with the next lap or, for the first, until there is a free
  // slot.
  void await_lap(Stage stage);
  StagingMemory memory(size_t bytes);
  // Whether a call is copied at once, and where to.
  bool favours_whole(const Call& call, const Laps& laps) const;
  void make_whole(Call& call);
  std::shared_ptr<Operation> call_of(const Request& request, std::chrono::milliseconds timeout,
                                     const Call& call, const Laps& laps, size_t number,
                                     const Lap& lap);
  std::vector<std::shared_ptr<Operation>> messages_of(const Request& request,
                                                      std::chrono::milliseconds timeout,
                                                      const Call& call, const Laps& laps,
                                                      size_t number, Lap& lap);
  static std::vector<at::Tensor> plain(const Side& side, bool written, Call& call);

  Devices& devices_;
  const DeviceAccess& access_;
  const DeviceAccess& host_;
  const PluginStreams streams_;
  DeviceLaps direct_;  // of the first stage
  const bool in_stream_;
  const size_t most_;
  std::array<Slot, kSlots> slots_;
  size_t prepared_ = 0;  // laps, ever
  bool told_ = false;    // how the copies are made

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<std::shared_ptr<Call>>, kStages> calls_;  // for each stage to begin
  std::array<size_t, kStages> done_{};                            // laps, ever
  size_t without_queue_ = 2;  // threads that copy, and have not tried to make theirs
  bool stopping_ = false;
  std::array<std::thread, kStages> threads_;
};

}  // namespace hccl_like
