#pragma once
// Calls of one group on one device, made by a stream of the device: stream programs with real
// memory. Every rank reads the memory of the others in place.
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/stream/stream_queue.h"
#include "transport/same_host/exports.h"

namespace hccl_like {

// What the calls of a group on a device share: this rank's copies of the ranks' words, the peers'
// copies of its own word, the programs and the stream. All ranks must make the same calls in the
// same order. One thread at a time, except where a method says otherwise.
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
  static bool may_serve(const Device& device, const Communicator& communicator,
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
  std::optional<bool> usable_;  // whether all ranks map each other's memory, once known
  uint64_t base_ = 0;           // of the words, after all programs queued so far
  std::map<std::tuple<Collective, int, bool>, Compiled> programs_;
  std::map<std::tuple<DataType, ReduceOp, bool>, bool> reductions_;
  MappedRange trial_;  // memory to try reductions on
  // The last one serves all calls, one after the other. Freed at the end: to free memory may wait
  // for streams that wait for the caller.
  std::vector<MappedRange> scratch_;
  Exports::Last last_input_, last_output_, last_scratch_;
};

// One call. Steps in this order, each on any one thread; only queue() does not block.
class StreamExecution {
 public:
  // A contiguous range of device memory, or nothing.
  struct Side {
    hcd_ref begin{};
    size_t bytes = 0;
  };

  // Takes the call's number. The sizes of an uneven all-to-all are known when the ranks have
  // agreed: if no chunk is large, agree() is false. The memory stays valid until finish() returns.
  // Of the call's layouts, only the sizes matter. Throws as Communicator::prepare_exchange().
  StreamExecution(StreamExecutor& executor, Call call, Side input, Side output);

  // The call's first message, in which the ranks show each other their memory.
  const std::shared_ptr<Operation>& exchange() const { return exchange_; }
  // False, on all ranks alike, if some rank cannot make the call in this way or the group failed.
  bool agree();
  // Queues the call behind `begin`, if given. If that fails, the group is aborted; finish() is
  // needed all the same.
  void queue(std::optional<DeviceEvent> begin);
  // Waits until the stream has passed `begin`.
  void await_begin();
  // Waits until all ranks have finished the call, or the group has failed and this rank's stream
  // has passed the call: nothing reads or writes the memory any more.
  std::optional<Error> finish();

 private:
  struct Memory {
    hcd_ipc_handle handle{};
    uint64_t offset = 0, bytes = 0, name = 0;
  };
  enum class Place : uint64_t { kApart, kInPlace, kEither };
  // What a rank tells the others. If only the two ranks of a chunk know its size (Call::uneven),
  // the sizes of the rank's input and output chunks follow.
  struct Record {
    Memory input, output, scratch, words;
    uint64_t able = 0;
    Place place = Place::kEither;
  };
  // Memory of a rank as this rank's device reaches it.
  struct Reached {
    hcd_ref input{}, output{}, scratch{};
    std::vector<PeerMemory::Mapping> held;
  };
  struct End {
    explicit End(Engine& its_engine) : engine(its_engine) {}
    Engine& engine;
    std::atomic<bool> reached{false};
  };
  using Operations = std::vector<std::shared_ptr<Operation>>;

  Record record(int rank) const;
  uint64_t chunk_told(int rank, bool input, size_t chunk) const;
  bool sizes_fit() const;
  void tell();
  bool show(const Side& side, Memory& memory, Exports::Last& last) const;
  bool map(int rank);
  bool map_words(int rank);
  bool all(bool good);
  Operations messages(Collective direction, uint32_t slice, std::span<std::byte> bytes) const;
  void find_chunks();
  size_t chunk_bytes(size_t chunk) const;
  size_t scratch_begin(std::span<const Slot> needed, size_t index) const;
  const StreamExecutor::Compiled& compiled(bool in_place) const;
  StreamCall::Memory place(RankSlot slot, uint32_t count) const;
  void fail(const std::string& why) const;
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  size_t ranks() const { return static_cast<size_t>(size()); }

  StreamExecutor& executor_;
  Communicator* const communicator_;
  Call call_;
  const Side input_, output_;
  const size_t record_bytes_;
  std::vector<std::byte> records_;  // by rank; then this rank's
  Record mine_;
  hcd_ref scratch_{};
  std::shared_ptr<Operation> exchange_;
  std::vector<Reached> reached_;  // by rank
  bool in_place_ = false;
  std::vector<size_t> begins_;  // of the chunks in a side that has all of them, and their end
  std::shared_ptr<End> end_;
  std::optional<DeviceEvent> begin_;  // where the stream begins with the call
};

}  // namespace hccl_like
