#pragma once
// Calls of one group on one device, made by a stream of the device: stream programs with real
// memory. Every rank reads the memory of the others in place.
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/stream/stream_queue.h"
#include "transport/same_host/exports.h"

namespace hccl_like {

// The calls of a group on a device share this rank's copies of the ranks' words, the peers' copies
// of its own word, the programs and the streams. All ranks must make the same calls in the same
// order. Threads: see StreamExecution.
class StreamExecutor {
 public:
  static constexpr int kMostRanks = 64;  // copies of words in a page
  // Bytes of the largest chunk from which a call is worth its exchange of memory.
  static constexpr size_t kLeastChunk = 64 << 10;

  // The algorithm whose ranks read from all others at once; of a broadcast, the one whose root
  // gives each byte once. Null: calls of this kind are not made by streams.
  static const Algorithm* algorithm(Collective collective, const Hosts& hosts);
  // True if the group's ranks share a host and the device has all that is needed. Equal on all
  // ranks whose devices are alike. A few nanoseconds; any thread.
  static bool may_serve(const Device& device, const Hosts& hosts, const CallPathOptions& options,
                        Collective collective);

  // `host`: of the host's own memory. Both devices outlive this object. `like`: a stream of the
  // device, or 0. Throws kDevice or kSystem.
  StreamExecutor(std::shared_ptr<Communicator> communicator, const Device& device, int index,
                 const Device& host, hcd_stream like);
  // All executions must be over. Keeps the words if the group has failed: peers may write them.
  ~StreamExecutor();
  StreamExecutor(const StreamExecutor&) = delete;
  StreamExecutor& operator=(const StreamExecutor&) = delete;

 private:
  friend class StreamExecution;
  using Word = volatile uint64_t;

  struct Compiled {
    StreamProgram program;                   // this rank's
    std::vector<std::vector<Slot>> scratch;  // by rank: chunks of the sizes of its scratch slots
    size_t chunks = 0;
  };
  const Compiled& program(Collective collective, int root, bool in_place);
  bool reduces(DataType type, ReduceOp op, Scaling scaling);
  hcd_ref scratch(size_t bytes);
  Word* copy_of(int rank) const;
  void release() const;
  bool reach_word(int peer, const ExportedRange& page);

  const std::shared_ptr<Communicator> communicator_;
  const Device& device_;
  const int index_;
  const Device& host_;
  const DeviceStream stream_, beside_;
  std::byte* words_ = nullptr;  // one page: copies of the ranks' words
  MappedRange registered_;      // that page with the device
  ExportedRange exported_;
  std::vector<Word*> peers_;  // by rank: that rank's copy of this rank's word; null for this rank
  std::vector<PeerMemory::Mapping> peer_mappings_;
  std::vector<MappedRange> peer_registrations_;
  // By name, this rank's memory that calls had, and whether all ranks could map what they had to.
  // Used by the thread that queues.
  static constexpr size_t kMostShown = 512;
  std::map<uint64_t, bool> shown_;
  uint64_t base_ = 0;  // of the words, after all programs queued so far
  std::map<std::tuple<Collective, int, bool>, Compiled> programs_;
  std::map<std::tuple<DataType, ReduceOp, bool>, bool> reductions_;
  MappedRange trial_;  // memory to try reductions on
  // The last one serves all calls, one after the other. Freed at the end: to free memory may wait
  // for streams that wait for the caller.
  std::vector<MappedRange> scratch_;
  Exports::Last last_input_, last_output_, last_scratch_;
};

}  // namespace hccl_like
