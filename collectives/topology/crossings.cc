#include "collectives/topology/crossings.h"

#include <algorithm>
#include <vector>

#include "collectives/topology/hosts.h"

namespace hccl_like {

Crossings Crossings::apart(uint64_t ranks) {
  Crossings result{.ranks = ranks, .hosts = ranks, .pairs = ranks - 1, .hops = ranks};
  result.shift.fill(1), result.exchange.fill(1);
  return result;
}

Crossings Crossings::together(uint64_t ranks) {
  return {.ranks = ranks, .most = ranks, .least = ranks};
}

Crossings Crossings::of(const Hosts& hosts) {
  const int size = hosts.size();
  const auto ranks = static_cast<uint64_t>(size);
  if (hosts.count() < 2) return together(ranks);
  if (hosts.most() == 1) return apart(ranks);
  Crossings result{.ranks = ranks,
                   .hosts = static_cast<uint64_t>(hosts.count()),
                   .most = static_cast<uint64_t>(hosts.most()),
                   .least = ranks};
  for (int host = 0; host < hosts.count(); ++host) {
    const auto on = static_cast<uint64_t>(hosts.on(host));
    result.least = std::min(result.least, on);
    result.pairs = std::max(result.pairs, on * (ranks - on));
  }
  std::vector<uint32_t> shifts(result.hosts), exchanges(result.hosts);
  for (size_t k = 0; (uint64_t{1} << k) < ranks; ++k) {
    std::ranges::fill(shifts, 0), std::ranges::fill(exchanges, 0);
    for (int rank = 0; rank < size; ++rank) {
      const int host = hosts.host(rank), other = rank ^ (1 << k);
      const bool leaves = hosts.host((rank + (1 << k)) % size) != host;
      shifts[static_cast<size_t>(host)] += leaves;
      exchanges[static_cast<size_t>(host)] += other < size && hosts.host(other) != host;
      result.hops += k == 0 && leaves;
    }
    result.shift[k] = std::ranges::max(shifts);
    result.exchange[k] = std::ranges::max(exchanges);
  }
  return result;
}

}  // namespace hccl_like
