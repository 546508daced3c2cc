#pragma once
// Large calls on device memory that host code cannot address: overlaps copies with the network.
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/stream/stream_execution.h"
#include "collectives/stream/stream_message.h"
#include "process_group/calls/slices.h"
#include "process_group/device/devices.h"
#include "process_group/device/plugin_streams.h"
#include "process_group/issue/pending.h"
#include "process_group/staging/call_sides.h"
#include "process_group/staging/device_slices.h"
#include "process_group/staging/staging_memory.h"

namespace hccl_like {

// Serves one group and one device with three threads, one for each stage: copy a slice to staging
// memory; launch its operation and drive the engine until it is done; copy the slice back. Each
// stage serves the calls in launch order. A copying thread has a CopyQueue and blocks for each
// copy. Slices that network cards can move between device memories are not copied
// (device_slices.h): the first stage only waits for the caller's stream, and the last only ends the
// call. In stream order the first copy waits for the caller's stream, which later waits for the
// last copy. A failure cannot be reported there, so it spoils the call's outputs. Staging memory is
// a ring of kSlots slices, allocated once for all calls of the group. If copying a part costs about
// as much as copying everything (copy_costs.h), the first slice copies all input to memory of the
// call, and the last slice copies all output. The operations are the same, so each rank decides for
// itself.
//
// A call that streams of the devices may make (may_use_streams) asks the other ranks in its first
// stage. If all agree, that stage queues the whole call, and the second waits for its end; else the
// slices are prepared there, with the numbers that were reserved for them. A message that a stream
// moves is over in the first stage.
class Staging {
 public:
  // The first two outlive this object. `most`: bytes of a slice per side. Throws kSystem without
  // threads.
  Staging(Devices& devices, const DeviceAccess& access, size_t most);
  // All calls must be over. Joins the threads.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Whether streams of the device may make such a call (collectives/stream/stream_executor.h,
  // stream_message.h), if no rank finds a reason against it. Equal on all ranks whose devices are
  // alike.
  static bool may_use_streams(const DeviceAccess& access, const Hosts& hosts,
                              const CallPathOptions& options, Collective collective);

  class Call;
  // Prepares the operations of all slices, which take their sequence numbers here, and adds them to
  // `pending`. `pending` also holds the request's tensors as long as needed and, in stream order,
  // the copies back. The copies run after the work now queued on the caller's current stream.
  // Throws as Communicator::prepare().
  // The caller holds one lock for prepare() and launch(), which use the same order of calls.
  // Several calls may be prepared before the first launch; `pending` then expects all of them.
  std::shared_ptr<Call> prepare(const Request& request, const Slices& slices,
                                std::chrono::milliseconds timeout,
                                const std::shared_ptr<Communicator>& communicator,
                                std::shared_ptr<Pending> pending,
                                std::optional<Collective> part_of = std::nullopt);
  // A call that only takes its turn.
  std::shared_ptr<Call> prepare_nothing(std::shared_ptr<Pending> pending) const;
  // An operation of the whole group that only compares the request between its ranks.
  struct Comparison {
    std::shared_ptr<Operation> operation;
    std::vector<std::byte> records;
  };
  static Comparison compare(const Request& request, std::chrono::milliseconds timeout,
                            Communicator& communicator);
  // Starts a prepared call. Does not block.
  void launch(std::shared_ptr<Call> call);
  // Whether a prepared call is not over. Under the caller's lock.
  bool busy();

 private:
  // Slices in flight: one in each of the three stages and one ready for the slowest.
  static constexpr size_t kSlots = 4;
  struct Slot {
    StagingMemory input, output;  // undefined until first use
  };
  struct Slice {
    Part part;
    Slot* slot = nullptr;
    std::vector<std::shared_ptr<Operation>> operations;  // may depend on each other
    std::vector<SliceRole> roles;                        // of each operation
    bool direct = false;                                 // moved by network cards, not staged
    bool launched = false;
  };

  enum Stage : size_t { kCopyIn, kNetwork, kCopyOut, kStages };

  void run(Stage stage);
  void take_slots(const Call& call);
  void prepare_slices(Call& call);
  void prepare_stream(Call& call);
  void prepare_message(Call& call);
  void prepare_late(Call& call);
  bool run_in_stream(Stage stage, Call& call, auto&& queue);
  void find_direct(Call& call, auto&& queue, auto&& start);
  void await_queues();
  void stop();
  std::shared_ptr<Call> next(Stage stage);
  // Waits for the previous stage to finish the next slice; the first stage waits for a free slot.
  void await_slice(Stage stage);
  StagingMemory memory(size_t bytes);
  bool favours_whole(const Call& call, const Slices& slices) const;
  void make_whole(Call& call);
  std::shared_ptr<Operation> call_of(const Call& call, size_t number, const Slice& slice);
  std::vector<std::shared_ptr<Operation>> messages_of(const Call& call, size_t number,
                                                      Slice& slice);

  Devices& devices_;
  const DeviceAccess& access_;
  const DeviceAccess& host_;
  const PluginStreams streams_;
  DeviceSlices direct_;  // used by the first stage only
  const bool in_stream_;
  const size_t most_;
  std::unique_ptr<StreamExecutor> executor_;  // null: no call has tried streams
  DeviceStream message_stream_;               // empty: no message has tried streams
  std::array<Slot, kSlots> slots_;
  size_t prepared_ = 0;  // slices, in total
  bool told_ = false;    // the log names the kind of copies

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<std::shared_ptr<Call>>, kStages> calls_;  // queue of each stage
  std::array<size_t, kStages> done_{};                            // slices, in total
  size_t without_queue_ = 2;  // copying threads that have not tried to make a CopyQueue
  bool stopping_ = false;
  std::array<std::thread, kStages> threads_;
};

}  // namespace hccl_like
