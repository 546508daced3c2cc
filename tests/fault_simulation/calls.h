#pragma once
// Calls with inputs that follow from the seed, and what must come of them.
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/engine/operation.h"
#include "tests/fault_simulation/clock.h"

namespace hccl_like::fault_simulation {

// The same on all ranks of a group. A shift is a send to the next rank and a receive from the one
// before; a hail, a send from all ranks to the root, which receives from whoever comes first.
struct CallSpec {
  enum class Kind { kCollective, kShift, kHail };
  Kind kind = Kind::kCollective;
  Collective collective{};
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  size_t elements = 0;  // of a chunk, or of all where the payload is cut
  uint32_t number = 0;

  static CallSpec draw(Random& random, int ranks, uint32_t number);
  std::string describe() const;
};

// One rank's part: its memory, and the calls on it.
struct Prepared {
  std::vector<int32_t> input, output;
  std::vector<Call> calls;

  static Prepared of(const CallSpec& spec, int rank, int ranks);
  // Empty if input and output are what they must be after success; `sources`: of the receives from
  // anybody.
  std::string check(const CallSpec& spec, int rank, int ranks,
                    const std::vector<int>& sources) const;
};

}  // namespace hccl_like::fault_simulation
