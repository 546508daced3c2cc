#pragma once
// Queues a rank's stream program on a stream of its device.
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "collectives/stream/stream_program.h"
#include "core/base/error.h"
#include "core/base/types.h"
#include "device/device.h"

namespace hccl_like {

// A call as this rank's device reaches it: memory of all ranks, opened with peer_open where it is
// another process's, and the ranks' words in host memory that they share.
struct StreamCall {
  struct Memory {
    hcd_ref begin{};
    size_t bytes = 0;
  };
  // `count` chunks from `slot` upwards, which lie one behind the other.
  std::function<Memory(RankSlot slot, uint32_t count)> memory;
  std::function<volatile uint64_t*(int rank)> word;
  uint64_t base = 0;  // of all words before the call
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
};

// Work of calls on one stream. Not thread-safe. Must outlive the stream's work that it has queued.
class StreamQueue {
 public:
  // `device` outlives this object and can copy within, reduce, and queue waits or functions.
  StreamQueue(const Device& device, int index, hcd_stream stream)
      : device_(device), index_(index), stream_(stream) {}

  // Whether the device has what stream programs are made of, apart from types and operations.
  static bool can_run(const Device& device);

  // Does not block. After an error the work up to there stays queued, and the word of this rank
  // must be released (set to its largest value), because other ranks wait for it.
  [[nodiscard]] std::optional<Error> push(const StreamProgram& program, const StreamCall& call);

 private:
  struct Word {  // for a device that waits by host functions
    volatile uint64_t* word;
    uint64_t value;
  };
  std::optional<Error> wait(volatile uint64_t* word, uint64_t value);
  std::optional<Error> signal(volatile uint64_t* word, uint64_t value);
  std::optional<Error> reduce(const StreamProgram& program, const StreamStep& step,
                              const StreamCall& call);

  const Device& device_;
  const int index_;
  const hcd_stream stream_;
  std::deque<Word> words_;  // of queued functions
};

}  // namespace hccl_like
