#pragma once
// A user's algorithm: schedules from outside, which nothing is known about until they are proved.
#include <memory>
#include <string>
#include <string_view>

#include "collectives/registry/algorithms.h"

namespace hccl_like {

// For one layout of ranks. Immutable; `algorithm` refers to the other members.
struct OwnAlgorithm {
  // Reads the JSON form (docs/own-algorithms.md). Throws kMisuse, with rank and round, if the text
  // is no such form; schedules that are wrong are no error here. Equal texts give equal digests.
  static std::shared_ptr<const OwnAlgorithm> parse(std::string_view json);

  OwnAlgorithm() = default;
  OwnAlgorithm(const OwnAlgorithm&) = delete;
  OwnAlgorithm& operator=(const OwnAlgorithm&) = delete;

  // Checks and proves the schedules for every root, with separate memory and in place, as messages
  // and as programs of streams. All ranks of an all_reduce must add in the same order. Returns the
  // first fault, a sentence with ranks, round and chunk; "" means none. No other thread is needed.
  std::string fault() const;

  std::string name;
  OwnSchedules schedules;
  Algorithm algorithm{};
};

// The cost of a slice of schedules that need not be proved, in which the bytes of a load count
// chunks (OwnSchedules).
Cost chunk_cost(const std::vector<Schedule>& ranks, const Hosts& hosts);

}  // namespace hccl_like
