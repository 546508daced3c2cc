#include "collectives/topology/hosts.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

std::vector<int> ranks(const Hosts& hosts, int host) {
  const auto all = hosts.ranks(host);
  return {all.begin(), all.end()};
}

TEST(Hosts, ANumberOfRanksMeansOneHost) {
  const Hosts hosts = 5;
  EXPECT_EQ(hosts.size(), 5);
  EXPECT_EQ(hosts.count(), 1);
  EXPECT_FALSE(hosts.nested());
  EXPECT_EQ(hosts.to_string(), "1 host x 5 ranks");
}

TEST(Hosts, RanksNeedNotBeLocalPeers) {
  const Hosts hosts = Hosts::of(std::vector{7, 3, 7, 3, 3});
  EXPECT_EQ(ranks(hosts, 0), (std::vector{0, 2}));
  EXPECT_EQ(ranks(hosts, 1), (std::vector{1, 3, 4}));
  EXPECT_EQ(hosts.host(4), 1);
  EXPECT_EQ(hosts.place(4), 2);
  EXPECT_EQ(hosts.most(), 3);
  EXPECT_EQ(hosts.to_string(), "2 hosts, 2 to 3 ranks each");
}

TEST(Hosts, NamesDoNotMatter) {
  EXPECT_EQ(Hosts::of(std::vector{9, 9, 1, 1}), Hosts::even(2, 2));
  EXPECT_FALSE(Hosts::of(std::vector{9, 1, 9, 1}) == Hosts::even(2, 2));
  EXPECT_FALSE(Hosts::one_rank_each(4) == Hosts(4));
}

TEST(Crossings, OfLocalPeersOnHosts) {
  const Hosts hosts = Hosts::even(4, 8);
  const Crossings& x = hosts.crossings();
  EXPECT_EQ(x.ranks, 32u);
  EXPECT_EQ(x.pairs, 8u * 24);
  EXPECT_EQ(x.hops, 4u);
  EXPECT_EQ(x.shift[0], 1u);
  EXPECT_EQ(x.shift[2], 4u);
  EXPECT_EQ(x.shift[3], 8u);
  EXPECT_EQ(x.exchange[2], 0u);
  EXPECT_EQ(x.exchange[3], 8u);
}

TEST(Crossings, OfRanksDealtOutInTurn) {
  const Hosts hosts = Hosts::of(std::vector{0, 1, 0, 1});
  const Crossings& x = hosts.crossings();
  EXPECT_EQ(x.hops, 4u);
  EXPECT_EQ(x.exchange[0], 2u);
  EXPECT_EQ(x.exchange[1], 0u);
}

}  // namespace
}  // namespace hccl_like
