#pragma once
// One call of a StreamExecutor, made once or captured in a graph of the device.
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/stream/shown_memory.h"
#include "collectives/stream/stream_executor.h"

namespace hccl_like {

// One call. Steps in this order; only queue() does not block. One thread at a time constructs the
// executions of an executor, one thread at a time makes their calls of agree() and queue().
class StreamExecution {
 public:
  // Takes the call's number. The sizes of an uneven all-to-all are known when the ranks have
  // agreed: if no chunk is large, agree() is false. The memory stays valid until finish() returns.
  // Of the call's layouts, only the sizes matter. Throws as Communicator::prepare_exchange().
  // Of a captured call, the memory stays valid as long as the graph, and this object as long as the
  // executor.
  enum class Use : uint64_t { kOnce, kCaptured };
  StreamExecution(StreamExecutor& executor, Call call, DeviceRange input, DeviceRange output,
                  Use use = Use::kOnce);
  ~StreamExecution();

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

  // Instead of the last three steps: queues the call on a stream that captures a graph. Replays of
  // the call must not overlap. The error leaves the graph useless.
  std::optional<Error> capture(hcd_stream stream);

 private:
  enum class Place : uint64_t { kApart, kInPlace, kEither };
  // Each rank shows its record to all others. In an uneven call (Call::uneven) the sizes of the
  // rank's input and output chunks follow the record.
  struct Record {
    ShownMemory input, output, scratch, words;
    uint64_t able = 0;
    uint64_t small = 0;  // whether one kernel makes the call; `scratch` is its area then
    uint64_t fresh = 0;  // whether peers have not mapped some of the memory in an earlier call
    Place place = Place::kEither;
    Use use = Use::kOnce;
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

  Record record(int rank) const;
  uint64_t chunk_told(int rank, bool input, size_t chunk) const;
  bool sizes_fit() const;
  void tell();
  bool show(const DeviceRange& side, ShownMemory& memory, Exports::Last& last) const;
  void compare_with_earlier_calls();
  bool map(int rank);
  void find_chunks();
  size_t chunk_bytes(size_t chunk) const;
  size_t scratch_begin(std::span<const Slot> needed, size_t index) const;
  const StreamExecutor::Compiled& compiled() const { return *compiled_[in_place_ ? 1 : 0]; }
  DeviceRange place(RankSlot slot, uint32_t count) const;
  void fail(const std::string& why) const;
  bool disagree(int peer) const;
  bool may_be_small() const;
  bool replays_are_over() const;
  void prepare_small();
  size_t small_payload() const;
  std::optional<Error> capture_program(hcd_stream stream) const;
  std::optional<Error> capture_small(hcd_stream stream) const;
  SharedWords& shared_words() const {
    return captured_.words != nullptr ? *captured_.words : executor_.words_;
  }
  StreamCall stream_call() const;
  void release() const;
  bool lost() const;
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  size_t ranks() const { return static_cast<size_t>(size()); }

  StreamExecutor& executor_;
  Communicator* const communicator_;
  Call call_;
  const Scaling scaling_;
  const DeviceRange input_, output_;
  // Apart and in place, both found by the constructor: the executor's list of programs is not for
  // the thread that queues.
  const std::array<const StreamExecutor::Compiled*, 2> compiled_;
  const size_t record_bytes_;
  std::vector<std::byte> records_;  // by rank; then this rank's
  Record mine_;
  hcd_ref scratch_{};
  MappedRange own_scratch_;  // of a captured call
  CapturedWords captured_;   // without words: made once
  std::shared_ptr<Operation> exchange_;
  std::vector<Reached> reached_;  // by rank
  bool in_place_ = false;
  std::vector<size_t> begins_;  // of the chunks in a side that has all of them, and their end
  std::shared_ptr<End> end_;
  std::optional<DeviceEvent> begin_;   // where the stream begins with the call
  std::optional<DeviceEvent> passed_;  // where it has passed the call; none if it was lost before
};

}  // namespace hccl_like
