// Algorithms for several hosts over real links: the ranks, threads of one process, are told that
// they are on several.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "collectives/engine/communicator.h"
#include "collectives/testing/on_ranks.h"

namespace hccl_like {
namespace {

using testing::input;
using testing::on_ranks;
using testing::Rank;
using testing::region;
using testing::sum;

const std::vector<size_t> kHostCounts{0, 1, 3, 17, 1000, 20'011};

// Calls body(rank, communicator) on ranks of which rank r is on host hosts[r].
void on_hosts(const std::vector<int>& hosts, const std::string& algorithms,
              const std::function<void(int, Communicator&)>& body) {
  Config config;
  config.slice_bytes = 16 << 10;
  config.algo = ForcedAlgorithms::parse(algorithms);
  on_ranks(static_cast<int>(hosts.size()), config, [&](Rank me) {
    const auto communicator = testing::on_hosts(me, hosts);
    EXPECT_EQ(communicator->topology().hosts, Hosts::of(hosts));
    body(me.rank, *communicator);
    communicator->run({.collective = Collective::kBarrier});
  });
}

void every_collective(const std::vector<int>& hosts, const std::string& algorithms) {
  const auto size = static_cast<int>(hosts.size());
  const auto ranks = hosts.size();
  on_hosts(hosts, algorithms, [&](int rank, Communicator& group) {
    const auto me = static_cast<size_t>(rank);
    const auto call = [&](Collective collective, int root, Layout in, Layout out) {
      group.run({.collective = collective,
                 .type = DataType::kFloat32,
                 .root = root,
                 .input = std::move(in),
                 .output = std::move(out)});
    };
    const auto whole = [&](std::vector<float>& data) {
      return Layout::even(region(data), 1, sizeof(float));
    };
    const auto cut = [&](std::vector<float>& data) {
      return Layout::even(region(data), ranks, sizeof(float));
    };
    const auto own = [&](std::vector<float>& data) {
      const Region all = region(data);
      return Layout::single({&all, 1}, me, sizeof(float));
    };
    for (const size_t count : kHostCounts) {
      std::vector<float> in = input(rank, count), out(count, -1.0f);
      call(Collective::kAllReduce, 0, whole(in), whole(out));
      ASSERT_EQ(out, sum(size, count)) << count;
      for (const int root : {0, size - 1}) {
        out.assign(count, -1.0f);
        call(Collective::kBroadcast, root, rank == root ? whole(in) : Layout(), whole(out));
        ASSERT_EQ(out, input(root, count)) << count;
        out.assign(count, -1.0f);
        call(Collective::kReduce, root, whole(in), rank == root ? whole(out) : Layout());
        ASSERT_EQ(out, rank == root ? sum(size, count) : std::vector<float>(count, -1.0f)) << count;
      }

      std::vector<float> all(count * ranks, -1.0f), gathered;
      for (int r = 0; r < size; ++r)
        for (const float x : input(r, count)) gathered.push_back(x);
      call(Collective::kAllGather, 0, own(in), cut(all));
      ASSERT_EQ(all, gathered) << count;
      std::vector<float> parts = input(rank, count * ranks), part(count, -1.0f);
      call(Collective::kReduceScatter, 0, cut(parts), own(part));
      ASSERT_EQ(part, sum(size, count, me * count)) << count;
      call(Collective::kAllToAll, 0, cut(parts), cut(all));
      for (int r = 0; r < size; ++r) {
        const auto begin = all.begin() + static_cast<ptrdiff_t>(count) * r;
        ASSERT_EQ(std::vector<float>(begin, begin + static_cast<ptrdiff_t>(count)),
                  input(r, count, me * count))
            << count << " from " << r;
      }
    }
  });
}

const std::vector<std::vector<int>> kLayouts{{0, 0, 1, 1}, {0, 1, 0}, {0, 1, 1, 1, 2}, {0, 1, 2}};

TEST(SeveralHosts, EveryCollectiveIsExactAsChosen) {
  for (const auto& hosts : kLayouts) every_collective(hosts, "");
}

TEST(SeveralHosts, EveryAlgorithmIsExact) {
  for (const auto& hosts : kLayouts) {
    if (!Hosts::of(hosts).nested()) continue;
    for (size_t n = 0;; ++n) {
      std::string forced;
      bool any = false;
      for (int i = 0; i < kCollectives; ++i) {
        const auto collective = static_cast<Collective>(i);
        std::vector<std::string_view> names;
        for (const Algorithm& algorithm : algorithms(collective))
          if (!algorithm.fits(4) && algorithm.fits(Hosts::of(hosts)))
            names.push_back(algorithm.name);
        if (names.empty()) continue;
        any |= n < names.size();
        forced += (forced.empty() ? "" : ";") + std::string(name(collective)) + ':' +
                  std::string(names[std::min(n, names.size() - 1)]);
      }
      if (!any) break;
      SCOPED_TRACE(forced);
      every_collective(hosts, forced);
    }
  }
}

}  // namespace
}  // namespace hccl_like
