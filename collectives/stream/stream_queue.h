#pragma once
// Queues a rank's stream program on a stream of its device.
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "collectives/stream/stream_program.h"
#include "core/base/error.h"
#include "core/base/types.h"
#include "device/device.h"

namespace hccl_like {

// A call as this rank's device reaches it: memory of all ranks, opened with peer_open where it is
// another process's, and copies of the ranks' words in host memory that processes share.
struct StreamCall {
  // `count` chunks from `slot` upwards, which lie one behind the other.
  std::function<DeviceRange(RankSlot slot, uint32_t count)> memory;
  // This rank's copy of another rank's word, or of its second word.
  std::function<volatile uint64_t*(int rank, bool second)> word;
  // `peer`'s copy of this rank's word or second word; null for this rank.
  std::function<volatile uint64_t*(int peer, bool second)> copy;
  int ranks = 0;
  uint64_t base = 0;  // of all words before the call
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  Scaling scaling{};  // requires that every sum has the inputs of all ranks (Algorithm)
};

// Whether the device has what stream programs are made of, apart from types and operations: it
// copies and reduces within itself, and its streams wait for words or run host functions.
bool can_run_streams(const Device& device);

// Queues a call on a stream of the device. Does not block. The memory and the words outlive the
// queued work. `beside`: another stream, idle or of earlier calls, for copies that need no order
// within the call; the first stream waits for it in the end. After an error the work up to there
// stays queued, and the other ranks must release their copies of this rank's word (set them to the
// largest value), because they wait for it.
[[nodiscard]] std::optional<Error> queue_stream(const Device& device, int index, hcd_stream stream,
                                                hcd_stream beside, const StreamProgram& program,
                                                const StreamCall& call);

}  // namespace hccl_like
