#include "collectives/own/own_algorithm.h"

#include <gtest/gtest.h>

#include "collectives/verify/job.h"
#include "core/base/error.h"

namespace hccl_like {
namespace {

std::string exchange(const std::string& second = "reduce in[0]+scratch[0] to out[0]") {
  return R"({"hccl_like_schedule": 1, "name": "mine", "collective": "allreduce", "hosts": [5, 9],
    "roots": [[{"chunks": 1, "scratch": ["in[0]"], "rounds": [["send in[0]->1",
                 "recv scratch[0]<-1"], ["reduce in[0]+scratch[0] to out[0]"]]},
               {"chunks": 1, "scratch": ["in[0]"], "rounds": [["send in[0]->0",
                 "recv scratch[0]<-0"], [")" +
         second + R"("]]}]]})";
}

TEST(OwnAlgorithm, IsAnAlgorithmOfItsLayout) {
  const auto own = OwnAlgorithm::parse(exchange());
  EXPECT_EQ(own->fault(), "");
  const Algorithm& algorithm = own->algorithm;
  EXPECT_EQ(algorithm.collective, Collective::kAllReduce);
  EXPECT_EQ(algorithm.name, "mine");
  EXPECT_TRUE(fits(algorithm, Hosts::one_rank_each(2)));
  EXPECT_FALSE(fits(algorithm, 2));
  EXPECT_FALSE(fits(algorithm, 3));
  EXPECT_EQ(schedule_of(algorithm, 0, Hosts::one_rank_each(2), 0).to_string(),
            "0: send in[0]->1  recv scratch[0]<-1\n1: reduce in[0]+scratch[0] to out[0]\n");
  EXPECT_EQ(key_of(algorithm), key_of(OwnAlgorithm::parse(exchange())->algorithm));
  EXPECT_NE(key_of(algorithm),
            key_of(OwnAlgorithm::parse(exchange("copy scratch[0] to out[0]"))->algorithm));
}

TEST(OwnAlgorithm, ReportsTheFirstFault) {
  EXPECT_EQ(OwnAlgorithm::parse(exchange("copy scratch[0] to out[0]"))->fault(),
            "rank 1 of 2: out[0] does not hold what it should: in[0] of rank 1 is missing; round 1 "
            "wrote it last: copy scratch[0] to out[0]");
}

// Written out, our schedules cost about what the closed form says.
TEST(OwnAlgorithm, CostsWhatTheSameScheduleCostsAsOneOfOurs) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kReduce, Collective::kAllToAll})
    for (const Algorithm& ours : algorithms(collective))
      for (const Hosts& hosts : {Hosts(4), Hosts(8), Hosts::one_rank_each(4)}) {
        if (!fits(ours, hosts) || ours.equal_chunks) continue;  // whose chunks share messages
        OwnSchedules written{.hosts = hosts, .by_root = {make_job(ours, hosts).ranks}};
        written.chunk_cost = chunk_cost(written.by_root[0], hosts);
        const Algorithm same{.collective = collective, .name = "same", .own = &written};
        const Topology topology{.hosts = hosts};
        for (const uint64_t bytes : {uint64_t{64}, uint64_t{64} << 10, uint64_t{4} << 20}) {
          const auto time = [&](const Algorithm& algorithm) {
            return static_cast<double>(
                estimate_ps(cost_of(algorithm, hosts.crossings(), bytes), 1, 4, topology));
          };
          EXPECT_NEAR(time(same) / time(ours), 1, 0.6)
              << name(collective) << ' ' << ours.name << ' ' << hosts.to_string() << ' ' << bytes;
        }
      }
}

TEST(OwnAlgorithm, RefusesTextThatIsNoForm) {
  const auto refused = [](const std::string& text) {
    try {
      OwnAlgorithm::parse(text);
    } catch (const Exception& exception) {
      return exception.error().message;
    }
    return std::string();
  };
  EXPECT_EQ(refused("{"),
            "an algorithm is no JSON object with \"hccl_like_schedule\": 1; "
            "docs/own-algorithms.md describes the form");
  EXPECT_EQ(refused(exchange("recv in[4294967295]<-0")),
            "rank 1, round 1: \"recv in[4294967295]<-0\" is no step; docs/own-algorithms.md "
            "describes the form");
}

}  // namespace
}  // namespace hccl_like
