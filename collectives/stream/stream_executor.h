#pragma once
// Calls of one group on one device, made by a stream of the device: stream programs with real
// memory. Every rank reads the memory of the others in place.
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/stream/device_reductions.h"
#include "collectives/stream/replay_watch.h"
#include "collectives/stream/shared_words.h"
#include "collectives/stream/stream_queue.h"
#include "transport/same_host/exports.h"

namespace hccl_like {

// The calls of a group on a device share this rank's copies of the ranks' words, the peers' copies
// of its own word, the programs and the streams. All ranks must make the same calls in the same
// order. Threads: see StreamExecution.
class StreamExecutor {
 public:
  static constexpr int kMostRanks = SharedWords::kGrain;
  // Bytes of the largest chunk from which a call is worth its exchange of memory.
  static constexpr size_t kLeastChunk = kLeastOfStreams;

  // The algorithm whose ranks read from all others at once; of a broadcast, the one whose root
  // gives each byte once. Null: calls of this kind are not made by streams.
  static const Algorithm* algorithm(Collective collective, const Hosts& hosts);
  // Whether the device has all that is needed.
  static bool may_serve(const Device& device);
  // True if the group's ranks share a host and the device has all that is needed. Equal on all
  // ranks whose devices are alike. A few nanoseconds; any thread.
  static bool may_serve(const Device& device, const Hosts& hosts, const CallPathOptions& options,
                        Collective collective);

  // `host`: of the host's own memory. Both devices outlive this object. `like`: a stream of the
  // device, or 0. Throws kDevice or kSystem.
  StreamExecutor(std::shared_ptr<Communicator> communicator, const Device& device, int index,
                 const Device& host, hcd_stream like);
  // At its end, all executions must be over, and await_replays() was called if one was captured.
  StreamExecutor(const StreamExecutor&) = delete;
  StreamExecutor& operator=(const StreamExecutor&) = delete;

  // Until no replay of a captured call runs here. No call is captured from now on.
  void await_replays() { watch_.reset(); }

 private:
  friend class StreamExecution;

  struct Compiled {
    StreamProgram program;                   // this rank's
    std::vector<std::vector<Slot>> scratch;  // by rank: chunks of the sizes of its scratch slots
    size_t chunks = 0;
  };
  const Compiled& program(Collective collective, int root, bool in_place);
  hcd_ref scratch(size_t bytes);
  // Words for one captured call: two for each rank.
  CapturedWords words_of_captured();
  ReplayWatch& watch();

  const std::shared_ptr<Communicator> communicator_;
  const Device& device_;
  const int index_;
  const Device& host_;
  const DeviceStream stream_, beside_;
  SharedWords words_;  // by rank: the copies of the ranks' words
  // By name, this rank's memory that calls had, and whether all ranks could map what they had to.
  // Used by the thread that queues.
  static constexpr size_t kMostShown = 512;
  std::map<uint64_t, bool> shown_;
  uint64_t base_ = 0;  // of the words, after all programs queued so far
  std::map<std::tuple<Collective, int, bool>, Compiled> programs_;
  DeviceReductions reductions_;
  // The last one serves all calls, one after the other. Freed at the end: to free memory may wait
  // for streams that wait for the caller.
  std::vector<MappedRange> scratch_;
  Exports::Last last_input_, last_output_, last_scratch_;
  std::vector<std::unique_ptr<SharedWords>> captured_;
  size_t captured_calls_ = 0;
  std::unique_ptr<ReplayWatch> watch_;  // null: no call was captured
};

}  // namespace hccl_like
