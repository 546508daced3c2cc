#include "tests/proof/round_clock.h"

#include <algorithm>
#include <utility>

namespace hccl_like {

RoundClock::RoundClock(const Topology& topology, uint64_t chunk_bytes)
    : topology_(topology.with_sharing()),
      chunk_bytes_(chunk_bytes),
      begin_ps_(static_cast<size_t>(topology.size())),
      end_ps_(begin_ps_),
      out_ps_(begin_ps_),
      in_ps_(begin_ps_),
      uplink_ps_(static_cast<size_t>(topology.hosts.count())),
      downlink_ps_(uplink_ps_) {
  for (int rank = 0; rank < topology.size(); ++rank)
    host_.push_back(static_cast<uint32_t>(topology.host(rank)));
}

void RoundClock::run(LargeRound& round, std::span<const Arrival> arrivals,
                     std::span<const uint32_t> first) {
  // Ranks wait for each other only at the link of their host, which one host does not have.
  const Hosts& hosts = topology_.hosts;
  const auto each_group = [&](auto&& visit) {
    for (int host = 0; host < hosts.count() && hosts.count() > 1; ++host) visit(hosts.ranks(host));
    for (int rank = 0; rank < hosts.size() && hosts.count() == 1; ++rank)
      visit(std::span<const int>(&rank, 1));
  };
  each_group([&](std::span<const int> ranks) { depart(round, ranks); });
  each_group([&](std::span<const int> ranks) { arrive(round, arrivals, first, ranks); });
  begin_ps_ = end_ps_;
}

uint64_t RoundClock::makespan_ps() const { return std::ranges::max(end_ps_); }

void RoundClock::depart(LargeRound& round, std::span<const int> ranks) {
  const auto push_from = [&](uint32_t rank, uint32_t step) {
    while (step < round.begin[rank + 1] && round.steps[step].what() != Step::Kind::kSend) ++step;
    if (step < round.begin[rank + 1])
      queue_.push({std::max(begin_ps_[rank], out_ps_[rank]), rank, step});
  };
  if (ranks.size() == 1) {
    const auto rank = static_cast<uint32_t>(ranks[0]);
    for (uint32_t i = round.begin[rank]; i < round.begin[rank + 1]; ++i)
      if (round.steps[i].what() == Step::Kind::kSend) send(rank, round.steps[i]);
    return;
  }
  for (const int rank : ranks)
    push_from(static_cast<uint32_t>(rank), round.begin[static_cast<size_t>(rank)]);
  while (!queue_.empty()) {
    const Departure next = queue_.top();
    queue_.pop();
    send(next.rank, round.steps[next.step]);
    push_from(next.rank, next.step + 1);
  }
}

void RoundClock::send(uint32_t rank, PackedStep& step) {
  const uint32_t host = host_[rank];
  const bool leaves = host != host_[step.peer];
  const LinkCost& link = leaves ? topology_.remote : topology_.local;
  uint64_t& port = out_ps_[rank];
  uint64_t& shared = leaves ? uplink_ps_[host] : port;
  const uint64_t start = std::max({begin_ps_[rank], port, shared});
  port = shared = start + port_time(link, step.count);
  step.set_arrival_ps(start + link.latency_ps);
  end_ps_[rank] = std::max(end_ps_[rank], port);
}

void RoundClock::arrive(const LargeRound& round, std::span<const Arrival> arrivals,
                        std::span<const uint32_t> first, std::span<const int> ranks) {
  uses_.clear();
  for (const int me : ranks) {
    const auto rank = static_cast<uint32_t>(me);
    const uint64_t begin = begin_ps_[rank];
    for (uint32_t i = round.begin[rank]; i < round.begin[rank + 1]; ++i) {
      const PackedStep& step = round.steps[i];
      if (step.what() == Step::Kind::kCopy)
        uses_.push_back({begin, add_time(step.count), rank, false});
      else if (step.what() == Step::Kind::kReduce)
        uses_.push_back(
            {begin, add_time((step.count - 1) * topology_.gathered_passes), rank, false});
    }
    for (const Arrival& arrival : arrivals.subspan(first[rank], first[rank + 1] - first[rank])) {
      const PackedStep& sent = round.steps[arrival.step];
      const uint64_t at = sent.arrival_ps();
      const bool enters = host_[arrival.sender] != host_[rank];
      uint64_t duration = port_time(enters ? topology_.remote : topology_.local, sent.count);
      // A rank that waits for the message adds it on arrival.
      if (arrival.adds && at < begin)
        uses_.push_back({begin, add_time(sent.count), rank, false});
      else if (arrival.adds)
        duration += add_time(sent.count);
      uses_.push_back({at, duration, rank, enters});
    }
  }
  if (!std::ranges::is_sorted(uses_, {}, &Use::from_ps))
    std::ranges::stable_sort(uses_, {}, &Use::from_ps);
  for (const Use& use : uses_) {
    uint64_t& port = in_ps_[use.rank];
    uint64_t& shared = use.enters ? downlink_ps_[host_[use.rank]] : port;
    port = shared = std::max({use.from_ps, port, shared}) + use.duration_ps;
    end_ps_[use.rank] = std::max(end_ps_[use.rank], port);
  }
}

}  // namespace hccl_like
