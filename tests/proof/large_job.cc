#include "tests/proof/large_job.h"

#include <utility>
#include <vector>

namespace hccl_like {

LargeJob large_job(const Algorithm& algorithm, const Hosts& hosts, int root) {
  LargeJob job{.collective = algorithm.collective,
               .root = root,
               .size = hosts.size(),
               .equal_chunks = algorithm.equal_chunks};
  job.make = [&algorithm, hosts, root](int rank) {
    return schedule_of(algorithm, rank, hosts, root);
  };
  // The ranks of a host follow each other.
  std::vector<uint32_t> first{0};
  for (int host = 0; host < hosts.count(); ++host)
    first.push_back(first.back() + static_cast<uint32_t>(hosts.on(host)));
  job.place = [hosts, first = std::move(first)](int rank) {
    return first[static_cast<size_t>(hosts.host(rank))] + static_cast<uint32_t>(hosts.place(rank));
  };
  return job;
}

LargeJob large_job(const Job& job) {
  return {.collective = job.collective,
          .root = job.root,
          .size = job.size(),
          .equal_chunks = job.equal_chunks,
          .make = [&job](int rank) { return job.ranks[static_cast<size_t>(rank)]; },
          .place = [](int rank) { return static_cast<uint32_t>(rank); }};
}

}  // namespace hccl_like
