#pragma once
// How a call will be run: decided once per (collective, size) and cached by the communicator.
#include <cstdint>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "device/reduce/reduce.h"

namespace hccl_like {

// A schedule with what the engine wants to know beforehand, so that walking it costs nothing but
// the walk.
struct Program {
  Program(Schedule schedule, bool sums_at_once);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // The number of a step in the whole schedule.
  size_t number(const Step& step) const { return static_cast<size_t>(&step - first_step); }

  Schedule schedule;
  const Step* first_step = nullptr;
  // By step number: how many earlier messages of the same direction go to the same peer in the same
  // round.
  std::vector<uint16_t> occurrence;
  bool sums_at_once;      // every sum is one kReduce step of all ranks' inputs; alike on all ranks
  size_t most_sends = 0;  // in any one round
  size_t most_recvs = 0;
};

// How the data goes. Without a board, or if it does not open, messages do all.
enum class CallPath : uint8_t {
  kMessages,
  kBoard,  // the call is small: over the communicator's board
  kLarge,  // straight between the ranks' memory, or through their staging buffers
};

// How large the chunks of a call are, as far as all ranks know it.
enum class Chunks : uint8_t {
  kEqual,
  kKnown,  // they differ, and all ranks know all of them (all-gather and reduce-scatter of lists)
  kPairs,  // each pair of ranks knows its own (Call::uneven)
};

// The channels (see Tag) of messages: those of the user's tags, and of what goes on with a
// collective pair by pair.
inline constexpr uint32_t kMessages = 0x80000000u;
inline constexpr uint32_t kLapsOfCollectives = 1;

// Everything but the program is the same on every rank.
struct Plan {
  const Program* program = nullptr;  // owned by the communicator
  uint32_t laps = 1;
  uint32_t window = 1;    // laps under path at once
  Reduction reduction{};  // null members if the call reduces nothing
  Scaling scaling;
  uint64_t fingerprint = 0;
  uint32_t channel = 0;    // see Tag
  uint32_t first_lap = 0;  // of one that goes on with another call's: laps are numbered from here
  CallPath path = CallPath::kMessages;
  Chunks chunks = Chunks::kEqual;
};

}  // namespace hccl_like
