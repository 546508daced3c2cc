// The text of every algorithm for 3 and 4 ranks, as reviewed. After a change of an algorithm that
// is meant, replace algorithms/golden.inc by what the failing test prints.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/registry/algorithms.h"

namespace hccl_like {
namespace {

constexpr const char* kGolden =
#include "collectives/algorithms/golden.inc"
    ;

std::string all_texts() {
  std::string result = "\n";
  for (int i = 0; i < kCollectives; ++i) {
    for (const Algorithm& algorithm : algorithms(static_cast<Collective>(i))) {
      const bool message =
          algorithm.collective == Collective::kSend || algorithm.collective == Collective::kRecv;
      std::vector<Hosts> layouts{3, 4};
      // Algorithms that need several hosts: two ranks on each of two, and ranks 0 and 2 on one and
      // rank 1 on another.
      if (!algorithm.fits(4)) layouts = {Hosts::even(2, 2), Hosts::of(std::vector{0, 1, 0})};
      for (const Hosts& hosts : layouts) {
        if (!algorithm.fits(hosts)) continue;
        result += std::string(name(algorithm.collective)) + ':' + std::string(algorithm.name) +
                  ", " + std::to_string(hosts.size()) + " ranks" +
                  (hosts.count() > 1 ? " on " + hosts.to_string() : "") + ", root 1\n";
        for (int rank = 0; rank < (message ? 1 : hosts.size()); ++rank) {
          result +=
              "rank " + std::to_string(rank) + '\n' + algorithm.make(rank, hosts, 1).to_string();
        }
      }
    }
  }
  return result;
}

TEST(Golden, SchedulesOfThreeAndFourRanks) {
  const std::string now = all_texts();
  if (now == kGolden) return;
  ADD_FAILURE()
      << "schedules differ from collectives/algorithms/golden.inc; the new ones are:\nR\"golden("
      << now << ")golden\"\n";
}

}  // namespace
}  // namespace hccl_like
