#pragma once
// The clock of simulate() for jobs whose schedules do not fit into memory: round by round.
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

#include "collectives/topology/topology.h"
#include "tests/proof/large_rounds.h"

namespace hccl_like {

// The model is that of simulate() with one slice. A port serves the messages of a round before
// those of the next, where simulate() serves them as they come: the two differ where a fast rank's
// message overtakes a slow one's.
class RoundClock {
 public:
  RoundClock(const Topology& topology, uint64_t chunk_bytes);

  // Runs the next round of all ranks, and overwrites the cells of its sends. The arrivals of
  // receiver r are [first[r], first[r + 1]).
  void run(LargeRound& round, std::span<const Arrival> arrivals, std::span<const uint32_t> first);

  // The end of the last rank.
  uint64_t makespan_ps() const;

 private:
  // Occupies the port in, by a message or by a sum or copy of the rank.
  struct Use {
    uint64_t from_ps;
    uint64_t duration_ps;
    uint32_t rank;
    bool enters;  // from another host
  };

  // A rank's next message.
  struct Departure {
    uint64_t from_ps;
    uint32_t rank;
    uint32_t step;
    auto operator<=>(const Departure&) const = default;
  };

  void depart(LargeRound& round, std::span<const int> ranks);
  void send(uint32_t rank, PackedStep& step);
  void arrive(const LargeRound& round, std::span<const Arrival> arrivals,
              std::span<const uint32_t> first, std::span<const int> ranks);
  uint64_t add_time(uint64_t chunks) const {
    return byte_time_ps(chunks * chunk_bytes_, topology_.reduce_ps_per_kib);
  }
  uint64_t port_time(const LinkCost& link, uint64_t chunks) const {
    return link.gap_ps + byte_time_ps(chunks * chunk_bytes_, link.ps_per_kib);
  }

  const Topology topology_;
  const uint64_t chunk_bytes_;
  std::vector<uint32_t> host_;                     // by rank
  std::vector<uint64_t> begin_ps_, end_ps_;        // of the round, by rank
  std::vector<uint64_t> out_ps_, in_ps_;           // when a rank's ports are free
  std::vector<uint64_t> uplink_ps_, downlink_ps_;  // when a host's are
  // Empty between two hosts, but for their memory.
  std::priority_queue<Departure, std::vector<Departure>, std::greater<>> queue_;
  std::vector<Use> uses_;
};

}  // namespace hccl_like
