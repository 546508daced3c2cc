// Compressed calls over real links: the ranks, threads of one process, are told that they are on
// several hosts.
#include "collectives/compression/compressed_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/compression/compressed_messages.h"
#include "collectives/engine/communicator.h"
#include "collectives/testing/on_ranks.h"
#include "transport/link/traffic.h"

namespace hccl_like {
namespace {

using testing::on_ranks;
using testing::Rank;
using testing::region;
using Floats = std::vector<float>;
using enum Compression;

constexpr Compression kFormats[] = {kBf16, kMx8, kMx4};

Layout whole(Floats& data) { return Layout::even(region(data), 1, sizeof(float)); }
Layout cut(Floats& data, size_t ranks) { return Layout::even(region(data), ranks, sizeof(float)); }
Layout own(Floats& data, int rank) {
  const Region all = region(data);
  return Layout::single({&all, 1}, static_cast<size_t>(rank), sizeof(float));
}

// Gradients, as it were: magnitudes differ from block to block and within a block.
Floats noise(int rank, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> numbers;
  Floats values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = std::ldexp(numbers(random), static_cast<int>(i / 100 % 20) - 10);
  return values;
}

// Calls body(rank, communicator) in a group that compresses, and returns the results, by rank.
std::vector<Floats> results(const std::vector<int>& hosts, Config config, Compression compression,
                            const std::function<Floats(int, Communicator&)>& body) {
  std::vector<Floats> all(hosts.size());
  on_ranks(static_cast<int>(hosts.size()), config, [&](Rank me) {
    const auto group = testing::on_hosts(me, hosts);
    group->set_compression(compression);
    all[static_cast<size_t>(me.rank)] = body(me.rank, *group);
    group->run({.collective = Collective::kBarrier});
  });
  return all;
}

Call all_reduce(Floats& in, Floats& out, ReduceOp op = ReduceOp::kSum, double factor = 1) {
  return {.collective = Collective::kAllReduce,
          .type = DataType::kFloat32,
          .op = op,
          .factor = factor,
          .input = whole(in),
          .output = whole(out)};
}

// By block of 32 from `first` on: the largest magnitude.
std::vector<double> largest(const std::vector<double>& values) {
  std::vector<double> most((values.size() + 31) / 32, 0.0);
  for (size_t i = 0; i < values.size(); ++i)
    most[i / 32] = std::max(most[i / 32], std::abs(values[i]));
  return most;
}

constexpr double relative_error(Compression compression) {
  return compression == kMx8 ? 1 / 127.0 : compression == kMx4 ? 1 / 5.0 : 1 / 256.0;
}

// In float64: the exact sum, and how far a result may be from it by docs/compression.md.
struct Bounded {
  std::vector<double> sum, error;
};
Bounded bounded(const std::vector<int>& hosts, size_t count, double factor, Compression compression,
                bool result_is_encoded) {
  const double relative = relative_error(compression);
  std::vector<std::vector<double>> by_host(static_cast<size_t>(Hosts::of(hosts).count()),
                                           std::vector<double>(count));
  Bounded all{.sum = std::vector<double>(count), .error = std::vector<double>(count)};
  std::vector<double> magnitude(count);
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const Floats values = noise(static_cast<int>(rank), count);
    const auto host = static_cast<size_t>(Hosts::of(hosts).host(static_cast<int>(rank)));
    for (size_t i = 0; i < count; ++i) {
      by_host[host][i] += factor * values[i];
      all.sum[i] += factor * values[i];
      magnitude[i] += std::abs(factor * values[i]);
    }
  }
  std::vector<double> sent((count + 31) / 32, 0.0);
  for (const auto& values : by_host) {
    const auto most = largest(values);
    for (size_t i = 0; i < most.size(); ++i) sent[i] += most[i];
  }
  const auto result = largest(all.sum);
  for (size_t i = 0; i < count; ++i) {
    const double first = relative * sent[i / 32];
    all.error[i] = first + 1e-6 * magnitude[i];
    if (result_is_encoded) all.error[i] += relative * (result[i / 32] + first);
  }
  return all;
}

void expect_within(const Floats& found, const Bounded& bound, const std::string& what) {
  double worst = 0;
  ASSERT_EQ(found.size(), bound.sum.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(found[i] - bound.sum[i]);
    worst = std::max(worst, error);
    ASSERT_LE(error, bound.error[i]) << what << ", element " << i;
  }
  EXPECT_GT(worst, 0) << what << " was not compressed";
}

const std::vector<std::vector<int>> kCompressed{
    {0, 1}, {0, 0, 1, 1}, {0, 1, 0}, {0, 1, 1, 1, 2}, {0, 1, 2}};
constexpr size_t kCount = 50'011;

TEST(CompressedCalls, AnAllReduceIsWithinTheBoundAndTheSameOnAllRanks) {
  for (const auto& hosts : kCompressed) {
    for (const Compression format : kFormats) {
      const auto all = results(hosts, {}, format, [](int rank, Communicator& group) {
        Floats in = noise(rank, kCount), out(kCount);
        group.run(all_reduce(in, out));
        return out;
      });
      const std::string what = std::string(name(format)) + " on " + Hosts::of(hosts).to_string();
      expect_within(all[0], bounded(hosts, kCount, 1, format, true), what);
      for (const Floats& result : all) ASSERT_EQ(result, all[0]) << what;
    }
  }
}

TEST(CompressedCalls, TheResultDoesNotDependOnSlicesOrOnTheMemory) {
  const std::vector<int> hosts{0, 1, 1, 2};
  const auto run = [&](uint64_t slice, bool in_place, bool list) {
    Config config;
    config.remote_slice_bytes = slice;
    return results(hosts, config, kMx8, [&](int rank, Communicator& group) {
      Floats in = noise(rank, kCount), out(kCount);
      Call call = in_place ? all_reduce(in, in) : all_reduce(in, out);
      if (list) {  // cut within blocks
        std::vector<Region> regions{region(in)};
        const Region rest{regions[0].data + 4 * 1001, regions[0].bytes - 4 * 1001};
        regions[0].bytes = 4 * 1001;
        regions.push_back({rest.data, 4 * 7});
        regions.push_back({rest.data + 4 * 7, rest.bytes - 4 * 7});
        // Not merged into one range: the parts are in another memory, one by one.
        std::vector<Floats> apart;
        for (const Region& part : regions) {
          const auto* first = reinterpret_cast<const float*>(part.data);
          apart.emplace_back(first, first + part.bytes / 4);
        }
        std::vector<Region> places;
        for (Floats& part : apart) places.push_back(region(part));
        call.input = call.output = Layout::even(places, 1, sizeof(float));
        group.run(call);
        Floats joined;
        for (const Floats& part : apart) joined.insert(joined.end(), part.begin(), part.end());
        return joined;
      }
      group.run(call);
      return in_place ? in : out;
    });
  };
  const auto wanted = run(4 << 20, false, false);
  EXPECT_EQ(run(4 << 20, true, false), wanted);
  EXPECT_EQ(run(20'000, false, false), wanted);
  EXPECT_EQ(run(20'000, true, true), wanted);
}

TEST(CompressedCalls, AveragesAndFactorsAreAppliedBesides) {
  const std::vector<int> hosts{0, 0, 1};
  for (const auto& [op, given, factor] :
       {std::tuple(ReduceOp::kAvg, 1.0, 1 / 3.0), std::tuple(ReduceOp::kPreMulSum, 0.75, 0.75)}) {
    const auto all =
        results(hosts, {}, kMx8, [&, op = op, given = given](int rank, Communicator& group) {
          Floats in = noise(rank, kCount), out(kCount);
          group.run(all_reduce(in, out, op, given));
          return out;
        });
    expect_within(all[0], bounded(hosts, kCount, factor, kMx8, true), std::string(name(op)));
    EXPECT_EQ(all[1], all[0]);
    EXPECT_EQ(all[2], all[0]);
  }
}

TEST(CompressedCalls, AReduceScatterIsWithinTheBoundOfOneRounding) {
  constexpr size_t kPart = 20'000;  // whole blocks: the bound is computed from the first element on
  for (const auto& hosts : kCompressed) {
    const size_t ranks = hosts.size();
    for (const Compression format : kFormats) {
      const auto all = results(hosts, {}, format, [&](int rank, Communicator& group) {
        Floats in = noise(rank, ranks * kPart), out(kPart);
        group.run({.collective = Collective::kReduceScatter,
                   .type = DataType::kFloat32,
                   .input = cut(in, ranks),
                   .output = own(out, rank)});
        return out;
      });
      Floats joined;
      for (const Floats& part : all) joined.insert(joined.end(), part.begin(), part.end());
      expect_within(joined, bounded(hosts, ranks * kPart, 1, format, false),
                    std::string(name(format)));
    }
  }
}

TEST(CompressedCalls, AnAllGatherGivesAllRanksTheSameNumbersOfEach) {
  constexpr size_t kPart = 20'011;
  for (const auto& hosts : kCompressed) {
    const size_t ranks = hosts.size();
    for (const std::string algorithm : {"", "ring", "bruck", "direct"}) {
      Config config;
      if (!algorithm.empty()) config.algo = ForcedAlgorithms::parse("all_gather:" + algorithm);
      const auto all = results(hosts, config, kMx4, [&](int rank, Communicator& group) {
        Floats in = noise(rank, kPart), out(ranks * kPart);
        group.run({.collective = Collective::kAllGather,
                   .type = DataType::kFloat32,
                   .input = own(in, rank),
                   .output = cut(out, ranks)});
        EXPECT_EQ(in, noise(rank, kPart));
        return out;
      });
      Floats wanted;
      for (size_t rank = 0; rank < ranks; ++rank) {
        Floats part = noise(static_cast<int>(rank), kPart);
        const Pieces pieces(region(part).data, region(part).bytes);
        round_to_codec(*codec(kMx4), pieces, pieces);
        wanted.insert(wanted.end(), part.begin(), part.end());
      }
      for (const Floats& result : all) ASSERT_EQ(result, wanted) << algorithm;
    }
  }
}

TEST(CompressedCalls, OtherCallsAreExact) {
  const std::vector<int> hosts{0, 1};
  const size_t least = kLeastCompressed / sizeof(float);
  const auto exact = [&](const std::vector<int>& places, ReduceOp op, size_t count) {
    const auto with = [&](Compression format) {
      return results(places, {}, format, [&](int rank, Communicator& group) {
        Floats in = noise(rank, count), out(count);
        group.run(all_reduce(in, out, op));
        return out;
      });
    };
    return with(kMx4) == with(Compression::kNone);
  };
  EXPECT_TRUE(exact(hosts, ReduceOp::kSum, least - 1));
  EXPECT_FALSE(exact(hosts, ReduceOp::kSum, least));
  EXPECT_TRUE(exact(hosts, ReduceOp::kMax, kCount));
  EXPECT_TRUE(exact({0, 0}, ReduceOp::kSum, kCount));
  EXPECT_TRUE(exact({0, 0, 1}, ReduceOp::kSum, 2 * least - 1));
  EXPECT_FALSE(exact({0, 0, 1}, ReduceOp::kSum, 2 * least));
  on_ranks(2, {}, [&](Rank me) {
    const auto group = testing::on_hosts(me, hosts);
    group->set_compression(kMx4);
    std::vector<int64_t> data(kCount, int64_t{1} << 40);
    group->run({.collective = Collective::kAllReduce,
                .type = DataType::kInt64,
                .input = Layout::even(region(data), 1, 8),
                .output = Layout::even(region(data), 1, 8)});
    EXPECT_EQ(data, std::vector<int64_t>(kCount, int64_t{1} << 41));
  });
}

TEST(CompressedCalls, TakeTheBytesOfTheirFormat) {
  const auto sent = [](Compression format, size_t count) {
    std::array<counter_layout::Peer, 2> counted;  // outlive the links
    on_ranks(2, {}, [&](Rank me) {
      const auto group = testing::on_hosts(me, {0, 1});
      group->set_compression(format);
      group->links()[static_cast<size_t>(1 - me.rank)]->traffic().count_in(
          counted[static_cast<size_t>(me.rank)]);
      Floats in = noise(me.rank, count), out(count);
      group->run(all_reduce(in, out));
      group->run({.collective = Collective::kBarrier});
    });
    EXPECT_EQ(counted[0].sent_bytes.load(), counted[1].sent_bytes.load());
    return counted[0].sent_bytes.load();
  };
  const size_t blocks = 10'000, floats = blocks * 32;
  EXPECT_EQ(sent(kNone, floats), floats * 4);
  EXPECT_EQ(sent(kBf16, floats), floats * 2);
  EXPECT_EQ(sent(kMx8, floats), blocks * 33);
  EXPECT_EQ(sent(kMx4, floats), blocks * 17);
}

TEST(CompressedCalls, AreRefusedWhereTheyCannotBe) {
  const auto error_of = [](Config config, const std::function<void(Communicator&)>& ask) {
    std::string told;
    on_ranks(2, config, [&](Rank me) {
      const auto group = testing::on_hosts(me, {0, 1});
      try {
        ask(*group);
      } catch (const Exception& error) {
        if (me.rank == 0) told = error.error().message;
      }
    });
    return told;
  };
  EXPECT_EQ(error_of({},
                     [](Communicator& group) {
                       group.set_deterministic();
                       group.set_compression(kMx8);
                     }),
            "results cannot be both deterministic and compressed with mx8, whose rounding depends "
            "on the hosts of the ranks; leave out one of the two");
  Config ring;
  ring.algo = ForcedAlgorithms::parse("all_reduce:ring");
  EXPECT_EQ(error_of(ring,
                     [](Communicator& group) {
                       group.set_compression(kMx8);
                       Floats data(kCount);
                       group.run(all_reduce(data, data));
                     }),
            "a compressed all_reduce is made by direct, not by ring; leave out the algorithm, or "
            "the compression");
}

TEST(CompressedCalls, RanksThatDisagreeAreTold) {
  on_ranks(2, {}, [](Rank me) {
    const auto group = testing::on_hosts(me, {0, 1});
    group->set_compression(me.rank == 0 ? kMx8 : kNone);
    Floats data(kCount);
    try {
      group->run(all_reduce(data, data));
      ADD_FAILURE() << "rank " << me.rank << " went on";
    } catch (const Exception& error) {
      EXPECT_NE(error.error().message.find("disagree about call #1"), std::string::npos)
          << error.error().message;
    }
  });
}

}  // namespace
}  // namespace hccl_like
