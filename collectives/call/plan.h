#pragma once
// How a call runs: decided once per (collective, size) and cached by the communicator.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "device/compress/compress.h"
#include "device/reduce/reduce.h"

namespace hccl_like {

// A schedule with values that the engine needs, precomputed.
struct Program {
  Program(Schedule schedule, bool sums_at_once);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Index of a step in the whole schedule.
  size_t number(const Step& step) const { return static_cast<size_t>(&step - first_step); }

  Schedule schedule;
  const Step* first_step = nullptr;
  // By step number: earlier messages of the same direction to the same peer in the same round.
  std::vector<uint16_t> occurrence;
  bool sums_at_once;  // every sum is one kReduce step over all ranks' inputs; equal on all ranks
  size_t most_sends = 0;  // in any one round
  size_t most_recvs = 0;
};

// Path of the data. Without an open board, kMessages applies.
enum class CallPath : uint8_t {
  kMessages,
  kBoard,  // a small call, over the communicator's board
  kLarge,  // directly between the ranks' memory, or through staging buffers
};

// Chunk sizes of a call, as far as all ranks know them.
enum class Chunks : uint8_t {
  kEqual,
  kKnown,  // different, known to all ranks (all-gather and reduce-scatter of lists)
  kPairs,  // different, each known to one pair of ranks only (Call::uneven)
};

// Bytes of the smallest chunk or message that streams of devices move (collectives/stream/).
inline constexpr size_t kLeastOfStreams = 64 << 10;

// Message channels (see Tag): of user tags, and of pairwise slices of a collective.
inline constexpr uint32_t kMessages = 0x80000000u;
inline constexpr uint32_t kSlicesOfCollectives = 1;

// All members but `program` are equal on every rank.
struct Plan {
  const Program* program = nullptr;  // owned by the communicator
  uint32_t slices = 1;
  uint32_t window = 1;    // slices in flight at once
  Reduction reduction{};  // null members if the call reduces nothing
  Scaling scaling;
  const Codec* codec = nullptr;  // of messages between hosts; null: they are sent as they are
  uint64_t fingerprint = 0;
  uint32_t channel = 0;      // see Tag
  uint32_t first_slice = 0;  // number of the first slice, if the plan continues another call
  CallPath path = CallPath::kMessages;
  Chunks chunks = Chunks::kEqual;
};

}  // namespace hccl_like
