#include "collectives/own/own_algorithm.h"

#include <algorithm>
#include <bit>
#include <random>

#include "collectives/stream/stream_check.h"
#include "collectives/verify/check.h"
#include "collectives/verify/prove.h"

namespace hccl_like {

namespace {

// Programs of streams serve up to so many ranks, and their check is for few.
constexpr int kMostStreamRanks = 64;

std::string wrong_chunks(const Job& job) {
  if (cuts_payload(job.collective)) return "";
  for (int rank = 0; rank < job.size(); ++rank) {
    const uint32_t chunks = job.ranks[static_cast<size_t>(rank)].chunks();
    if (chunks != static_cast<uint32_t>(job.size()))
      return "rank " + std::to_string(rank) + " has " + std::to_string(chunks) + " chunks; " +
             std::string(name(job.collective)) + " has one for each rank, which are " +
             std::to_string(job.size());
  }
  return "";
}

// Sums of floats depend on their order. A random trial that shows no difference may be luck, and
// four are not.
std::string wrong_order(const Job& job) {
  if (job.collective != Collective::kAllReduce) return "";
  std::mt19937 random(1);
  for (int trial = 0; trial < 4; ++trial) {
    const auto outputs = run_on_floats(job, [&](int, int) {
      return static_cast<float>(random()) / static_cast<float>(1u << (random() % 24 + 8));
    });
    for (size_t rank = 1; rank < outputs.size(); ++rank)
      for (size_t chunk = 0; chunk < outputs[rank].size(); ++chunk)
        if (std::bit_cast<uint32_t>(outputs[rank][chunk]) !=
            std::bit_cast<uint32_t>(outputs[0][chunk]))
          return "ranks 0 and " + std::to_string(rank) + " add out[" + std::to_string(chunk) +
                 "] up in different orders, so that their floats would differ; let one rank add "
                 "the chunk and send the sum to the others, or add in the same order";
  }
  return "";
}

std::string fault_of_streams(const Job& job, Memory memory) {
  if (job.size() > kMostStreamRanks) return "";
  return check_streams(job, compile_streams(job, memory == Memory::kInPlace), memory);
}

std::string fault_of(const Job& job) {
  if (std::string fault = wrong_chunks(job); !fault.empty()) return fault;
  if (std::string fault = check(job); !fault.empty()) return fault;
  for (const Memory memory : {Memory::kSeparate, Memory::kInPlace}) {
    if (memory == Memory::kInPlace && !may_run_in_place(job.collective)) break;
    std::string fault = prove(job, memory);
    if (fault.empty()) fault = fault_of_streams(job, memory);
    if (!fault.empty())
      return fault + (memory == Memory::kInPlace ? " (input and output are the same memory)" : "");
  }
  return wrong_order(job);
}

uint64_t busiest(const std::vector<Load>& loads, uint64_t Load::*what) {
  return loads.empty() ? 0 : std::ranges::max(loads, {}, what).*what;
}

Load busiest(const std::vector<Load>& loads) {
  return {busiest(loads, &Load::messages), busiest(loads, &Load::bytes),
          busiest(loads, &Load::reduced)};
}

void accumulate(Load& sum, const Load& load) {
  sum.messages += load.messages, sum.bytes += load.bytes, sum.reduced += load.reduced;
}

void accumulate(std::vector<Load>& sums, const std::vector<Load>& loads) {
  for (size_t i = 0; i < sums.size(); ++i) accumulate(sums[i], loads[i]);
}

}  // namespace

std::string OwnAlgorithm::fault() const {
  for (size_t root = 0; root < schedules.by_root.size(); ++root) {
    const std::string fault = fault_of({.collective = algorithm.collective,
                                        .root = static_cast<int>(root),
                                        .ranks = schedules.by_root[root],
                                        .equal_chunks = algorithm.equal_chunks});
    if (fault.empty()) continue;
    return schedules.by_root.size() > 1 ? "with root " + std::to_string(root) + ", " + fault
                                        : fault;
  }
  return "";
}

// In every round the busiest rank and the busiest uplink are on the critical path. What ranks send
// is what they receive, in sum; a rank that only receives counts by what it reduces.
Cost chunk_cost(const std::vector<Schedule>& ranks, const Hosts& hosts) {
  Cost cost;
  size_t rounds = 0;
  for (const Schedule& schedule : ranks) rounds = std::max(rounds, schedule.rounds());
  const auto size = ranks.size(), count = static_cast<size_t>(hosts.count());
  // Messages out and in, within a host and between hosts, by rank; between hosts, by host.
  std::vector<Load> out(2 * size), far(2 * size), wire(2 * count);
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<Load> out_now(2 * size), far_now(2 * size), wire_now(2 * count);
    for (size_t rank = 0; rank < size; ++rank) {
      if (round >= ranks[rank].rounds()) continue;
      const auto host = static_cast<size_t>(hosts.host(static_cast<int>(rank)));
      for (const Step& step : ranks[rank].steps(round)) {
        const bool adds = step.kind == Step::Kind::kRecvReduce;
        if (adds || step.peer < 0)
          out_now[rank].reduced += step.count * std::max<uint64_t>(1, step.sources);
        if (step.peer < 0 || step.peer >= hosts.size()) continue;  // nor is it proved yet
        const size_t in = step.kind == Step::Kind::kSend ? 0 : 1;
        const Load message{.messages = 1, .bytes = step.count, .reduced = 0};
        if (static_cast<size_t>(hosts.host(step.peer)) == host) {
          accumulate(out_now[in * size + rank], message);
        } else {
          accumulate(far_now[in * size + rank], message);
          accumulate(wire_now[in * count + host], message);
        }
      }
    }
    accumulate(cost.path, busiest(out_now)), accumulate(cost.wire, busiest(wire_now));
    accumulate(out, out_now), accumulate(far, far_now), accumulate(wire, wire_now);
    (busiest(wire_now).messages > 0 ? cost.far_rounds : cost.rounds) += 1;
  }
  cost.busiest = busiest(out), cost.far_busiest = busiest(far), cost.wire_busiest = busiest(wire);
  cost.resident = rounds;
  return cost;
}

}  // namespace hccl_like
