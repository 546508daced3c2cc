#include "collectives/verify/job.h"

#include <algorithm>

#include "collectives/algorithms/all.h"

namespace hccl_like {

Job make_job(const Algorithm& algorithm, const Hosts& hosts, int root) {
  Job job{.collective = algorithm.collective, .root = root, .equal_chunks = algorithm.equal_chunks};
  job.ranks.reserve(static_cast<size_t>(hosts.size()));
  for (int rank = 0; rank < hosts.size(); ++rank)
    job.ranks.push_back(schedule_of(algorithm, rank, hosts, root));
  return job;
}

Job make_message(int size, int from, int to) {
  Job job{.collective = Collective::kSend, .root = from};
  job.ranks.assign(static_cast<size_t>(size), Schedule(1));
  job.ranks[static_cast<size_t>(from)] = send_to(to);
  job.ranks[static_cast<size_t>(to)] = recv_from(from);
  return job;
}

bool may_run_in_place(Collective collective) {
  switch (collective) {
    case Collective::kAllToAll:
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      return false;
    default:
      return true;
  }
}

namespace {

struct End {
  uint64_t pair;  // receiver, sender
  uint32_t step;  // global step number
  uint32_t rank;
};

uint64_t pair(int sender, int receiver) {
  return uint64_t{static_cast<uint32_t>(receiver)} << 32 | static_cast<uint32_t>(sender);
}

// The messages of one round, sorted by pair of ranks, then by step.
void collect(const Job& job, size_t round, const std::vector<uint32_t>& first,
             std::vector<End>& sends, std::vector<End>& receives) {
  sends.clear(), receives.clear();
  for (int rank = 0; rank < job.size(); ++rank) {
    const Schedule& schedule = job.ranks[static_cast<size_t>(rank)];
    if (round >= schedule.rounds()) continue;
    for (const Step& step : schedule.steps(round)) {
      const auto number =
          first[static_cast<size_t>(rank)] + static_cast<uint32_t>(&step - schedule.steps().data());
      const auto me = static_cast<uint32_t>(rank);
      if (step.kind == Step::Kind::kSend) sends.push_back({pair(rank, step.peer), number, me});
      if (step.kind == Step::Kind::kRecv || step.kind == Step::Kind::kRecvReduce) {
        receives.push_back({pair(step.peer, rank), number, me});
      }
    }
  }
  std::ranges::stable_sort(sends, {}, &End::pair);
  std::ranges::stable_sort(receives, {}, &End::pair);
}

std::string lonely(const Job& job, const Matching& matching, size_t round, const End& end) {
  const Schedule& schedule = job.ranks[end.rank];
  const Step& step = schedule.steps()[end.step - matching.first[end.rank]];
  const char* missing = step.kind == Step::Kind::kSend ? "receives it" : "sends it";
  return "rank " + std::to_string(end.rank) + ", round " + std::to_string(round) + ": " +
         schedule.to_string(step) + ", but rank " + std::to_string(step.peer) +
         " has no step in this round that " + missing;
}

}  // namespace

Matching match(const Job& job) {
  Matching matching;
  uint32_t steps = 0;
  size_t rounds = 0;
  for (const Schedule& schedule : job.ranks) {
    matching.first.push_back(steps);
    steps += static_cast<uint32_t>(schedule.steps().size());
    rounds = std::max(rounds, schedule.rounds());
  }
  matching.partner.assign(steps, Matching::kNone);

  std::vector<End> sends, receives;
  for (size_t round = 0; round < rounds; ++round) {
    collect(job, round, matching.first, sends, receives);
    for (size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
      const bool no_receive =
          i >= receives.size() || (i < sends.size() && sends[i].pair < receives[i].pair);
      const bool no_send =
          i >= sends.size() || (i < receives.size() && receives[i].pair < sends[i].pair);
      if (no_receive || no_send) {
        matching.fault = lonely(job, matching, round, no_receive ? sends[i] : receives[i]);
        return matching;
      }
      matching.partner[sends[i].step] = receives[i].step;
      matching.partner[receives[i].step] = sends[i].step;
    }
  }
  return matching;
}

}  // namespace hccl_like
