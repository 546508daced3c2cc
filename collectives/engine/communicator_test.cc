// Every collective over real transports, ranks as threads, exact values.
#include "collectives/engine/communicator.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "collectives/testing/on_ranks.h"

namespace hccl_like {
namespace {

using testing::float_of;
using testing::input;
using testing::on_ranks;
using testing::Rank;
using testing::region;
using testing::sum;

constexpr size_t kFloat = sizeof(float);

struct Case {
  int ranks;
  std::string transport;
  size_t slice_bytes;
};

class Collectives : public ::testing::TestWithParam<Case> {
 protected:
  Config config() const {
    Config config;
    config.transports = {GetParam().transport};
    config.slice_bytes = GetParam().slice_bytes;
    return config;
  }
  void run(const std::function<void(Rank)>& body) const {
    on_ranks(GetParam().ranks, config(), body);
  }
};

const std::vector<size_t> kFloatCounts{0, 1, 2, 3, 7, 8, 17, 1000, 4099, 100'003};

TEST_P(Collectives, AllReduceSumsOutOfPlaceAndInPlace) {
  run([](Rank me) {
    for (const size_t count : kFloatCounts) {
      std::vector<float> in = input(me.rank, count), out(count, -1.0f);
      const std::vector<float> expected = sum(me.size, count);
      me.communicator.run({.collective = Collective::kAllReduce,
                           .type = DataType::kFloat32,
                           .input = Layout::even(region(in), 1, kFloat),
                           .output = Layout::even(region(out), 1, kFloat)});
      ASSERT_EQ(out, expected) << count;
      ASSERT_EQ(in, input(me.rank, count)) << "the input was written";
      me.communicator.run({.collective = Collective::kAllReduce,
                           .type = DataType::kFloat32,
                           .input = Layout::even(region(in), 1, kFloat),
                           .output = Layout::even(region(in), 1, kFloat)});
      ASSERT_EQ(in, expected) << count;
    }
  });
}

TEST_P(Collectives, AllReduceAveragesAndScales) {
  run([](Rank me) {
    for (const size_t count : kFloatCounts) {
      std::vector<float> in(count, static_cast<float>(2 * me.rank)), out(count);
      me.communicator.run({.collective = Collective::kAllReduce,
                           .type = DataType::kFloat32,
                           .op = ReduceOp::kAvg,
                           .input = Layout::even(region(in), 1, kFloat),
                           .output = Layout::even(region(out), 1, kFloat)});
      ASSERT_EQ(out, std::vector<float>(count, static_cast<float>(me.size - 1)));
      me.communicator.run({.collective = Collective::kAllReduce,
                           .type = DataType::kFloat32,
                           .op = ReduceOp::kPreMulSum,
                           .factor = 0.5,
                           .input = Layout::even(region(in), 1, kFloat),
                           .output = Layout::even(region(out), 1, kFloat)});
      ASSERT_EQ(out, std::vector<float>(count, static_cast<float>(me.size * (me.size - 1) / 2)));
    }
  });
}

TEST_P(Collectives, AllReduceTakesSeveralTensorsAtOnce) {
  run([](Rank me) {
    std::vector<float> a = input(me.rank, 1001), b = input(me.rank, 3), c = input(me.rank, 5000);
    const std::vector<Region> all{region(a), region(b), region(c)};
    me.communicator.run({.collective = Collective::kAllReduce,
                         .type = DataType::kFloat32,
                         .input = Layout::even(all, 1, kFloat),
                         .output = Layout::even(all, 1, kFloat)});
    EXPECT_EQ(a, sum(me.size, 1001));
    EXPECT_EQ(b, sum(me.size, 3));
    EXPECT_EQ(c, sum(me.size, 5000));
  });
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  run([](Rank me) {
    for (const size_t count : kFloatCounts)
      for (int root = 0; root < me.size; ++root) {
        std::vector<float> data =
            me.rank == root ? input(root, count) : std::vector<float>(count, -1.0f);
        me.communicator.run({.collective = Collective::kBroadcast,
                             .type = DataType::kFloat32,
                             .root = root,
                             .input = Layout::even(region(data), 1, kFloat),
                             .output = Layout::even(region(data), 1, kFloat)});
        ASSERT_EQ(data, input(root, count)) << count << " from " << root;
      }
  });
}

TEST_P(Collectives, ReduceToEveryRootLeavesTheOthersAlone) {
  run([](Rank me) {
    for (const size_t count : kFloatCounts)
      for (int root = 0; root < me.size; ++root) {
        std::vector<float> in = input(me.rank, count), out(count, -1.0f);
        Call call{.collective = Collective::kReduce,
                  .type = DataType::kFloat32,
                  .root = root,
                  .input = Layout::even(region(in), 1, kFloat)};
        if (me.rank == root) call.output = Layout::even(region(out), 1, kFloat);
        me.communicator.run(std::move(call));
        ASSERT_EQ(out, me.rank == root ? sum(me.size, count) : std::vector<float>(count, -1.0f));
        ASSERT_EQ(in, input(me.rank, count));
      }
  });
}

TEST_P(Collectives, AllGatherAndReduceScatterMeet) {
  run([](Rank me) {
    const auto n = static_cast<size_t>(me.size), r = static_cast<size_t>(me.rank);
    for (const size_t count : kFloatCounts) {
      std::vector<float> mine = input(me.rank, count), all(count * n, -1.0f), expected;
      for (int peer = 0; peer < me.size; ++peer) {
        const auto part = input(peer, count);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const Region own = region(mine);
      me.communicator.run({.collective = Collective::kAllGather,
                           .type = DataType::kFloat32,
                           .input = Layout::single({&own, 1}, r, kFloat),
                           .output = Layout::even(region(all), n, kFloat)});
      ASSERT_EQ(all, expected) << count;

      // Every rank has the same `all`: the sum is n times it.
      std::vector<float> part(count, -1.0f);
      const Region result = region(part);
      me.communicator.run({.collective = Collective::kReduceScatter,
                           .type = DataType::kFloat32,
                           .input = Layout::even(region(all), n, kFloat),
                           .output = Layout::single({&result, 1}, r, kFloat)});
      for (float& x : mine) x *= static_cast<float>(n);
      ASSERT_EQ(part, mine) << count;
      ASSERT_EQ(all, expected) << "the input was written";
    }
  });
}

TEST_P(Collectives, UnevenListsArriveWhole) {
  run([](Rank me) {
    // Rank p contributes p * 301 + 1 elements, rank 1 none at all.
    const auto length = [](int p) { return p == 1 ? size_t{0} : static_cast<size_t>(p) * 301 + 1; };
    std::vector<float> mine = input(me.rank, length(me.rank));
    std::vector<std::vector<float>> all;
    std::vector<Region> regions;
    for (int p = 0; p < me.size; ++p) all.emplace_back(length(p), -1.0f);
    for (auto& part : all) regions.push_back(region(part));
    const Region own = region(mine);
    me.communicator.run({.collective = Collective::kAllGather,
                         .type = DataType::kFloat32,
                         .input = Layout::single({&own, 1}, static_cast<size_t>(me.rank), kFloat),
                         .output = Layout::list(regions, kFloat)});
    for (int p = 0; p < me.size; ++p) ASSERT_EQ(all[static_cast<size_t>(p)], input(p, length(p)));
  });
}

TEST_P(Collectives, GatherAndScatterForEveryRoot) {
  run([](Rank me) {
    const auto n = static_cast<size_t>(me.size), r = static_cast<size_t>(me.rank);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1003}, size_t{20'001}})
      for (int root = 0; root < me.size; ++root) {
        std::vector<float> mine = input(me.rank, count),
                           all(me.rank == root ? count * n : 0, -1.0f);
        const Region own = region(mine);
        Call gather{.collective = Collective::kGather,
                    .type = DataType::kFloat32,
                    .root = root,
                    .input = Layout::single({&own, 1}, r, kFloat)};
        if (me.rank == root) gather.output = Layout::even(region(all), n, kFloat);
        me.communicator.run(std::move(gather));
        if (me.rank == root) {
          std::vector<float> expected;
          for (int peer = 0; peer < me.size; ++peer) {
            const auto part = input(peer, count);
            expected.insert(expected.end(), part.begin(), part.end());
          }
          ASSERT_EQ(all, expected);
        }
        std::vector<float> back(count, -1.0f);
        const Region result = region(back);
        Call scatter{.collective = Collective::kScatter,
                     .type = DataType::kFloat32,
                     .root = root,
                     .output = Layout::single({&result, 1}, r, kFloat)};
        if (me.rank == root) scatter.input = Layout::even(region(all), n, kFloat);
        me.communicator.run(std::move(scatter));
        ASSERT_EQ(back, mine) << count << " root " << root;
      }
  });
}

TEST_P(Collectives, AllToAllTransposesWithEqualAndUnevenChunks) {
  run([](Rank me) {
    const auto n = static_cast<size_t>(me.size);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{3001}}) {
      std::vector<float> from, to(count * n, -1.0f), expected;
      for (int p = 0; p < me.size; ++p) {
        const auto chunk = input(me.rank * 100 + p, count),
                   arriving = input(p * 100 + me.rank, count);
        from.insert(from.end(), chunk.begin(), chunk.end());
        expected.insert(expected.end(), arriving.begin(), arriving.end());
      }
      me.communicator.run({.collective = Collective::kAllToAll,
                           .type = DataType::kFloat32,
                           .input = Layout::even(region(from), n, kFloat),
                           .output = Layout::even(region(to), n, kFloat)});
      ASSERT_EQ(to, expected) << count;
    }
    // Rank a sends (a + 2 b) * 11 elements to rank b: each pair knows its own size only.
    const auto length = [](int a, int b) { return static_cast<size_t>(a + 2 * b) * 11; };
    std::vector<std::vector<float>> out, in;
    std::vector<Region> out_regions, in_regions;
    for (int p = 0; p < me.size; ++p) {
      out.push_back(input(me.rank * 100 + p, length(me.rank, p)));
      in.emplace_back(length(p, me.rank), -1.0f);
    }
    for (auto& part : out) out_regions.push_back(region(part));
    for (auto& part : in) in_regions.push_back(region(part));
    me.communicator.run({.collective = Collective::kAllToAll,
                         .type = DataType::kFloat32,
                         .uneven = true,
                         .input = Layout::list(out_regions, kFloat),
                         .output = Layout::list(in_regions, kFloat)});
    for (int p = 0; p < me.size; ++p)
      ASSERT_EQ(in[static_cast<size_t>(p)], input(p * 100 + me.rank, length(p, me.rank)));
  });
}

TEST_P(Collectives, MessagesGoRoundTheRing) {
  run([](Rank me) {
    if (me.size == 1) return;
    const int next = (me.rank + 1) % me.size, previous = (me.rank + me.size - 1) % me.size;
    for (const size_t count : kFloatCounts) {
      std::vector<float> out = input(me.rank, count), in(count, -1.0f);
      std::vector<std::shared_ptr<Operation>> both{
          me.communicator.prepare({.collective = Collective::kSend,
                                   .type = DataType::kFloat32,
                                   .root = next,
                                   .input = Layout::even(region(out), 1, kFloat)}),
          me.communicator.prepare({.collective = Collective::kRecv,
                                   .type = DataType::kFloat32,
                                   .root = previous,
                                   .output = Layout::even(region(in), 1, kFloat)})};
      me.communicator.launch(both, true);
      for (const auto& operation : both) {
        ASSERT_TRUE(me.communicator.engine().wait(*operation, Deadline::never()));
        ASSERT_EQ(operation->error(), nullptr) << operation->error()->message;
      }
      ASSERT_EQ(in, input(previous, count)) << count;
    }
  });
}

TEST_P(Collectives, ARankSendsToItself) {
  run([](Rank me) {
    for (const size_t count : kFloatCounts) {
      std::vector<float> out = input(me.rank, count), in(count, -1.0f);
      std::vector<std::shared_ptr<Operation>> both{
          me.communicator.prepare({.collective = Collective::kRecv,
                                   .type = DataType::kFloat32,
                                   .root = kAnySource,
                                   .output = Layout::even(region(in), 1, kFloat)}),
          me.communicator.prepare({.collective = Collective::kSend,
                                   .type = DataType::kFloat32,
                                   .root = me.rank,
                                   .input = Layout::even(region(out), 1, kFloat)})};
      if (count % 2 == 0) std::swap(both[0], both[1]);
      me.communicator.launch(both, true);
      for (const auto& operation : both) {
        ASSERT_TRUE(me.communicator.engine().wait(*operation, Deadline::never()));
        ASSERT_EQ(operation->error(), nullptr) << operation->error()->message;
      }
      ASSERT_EQ(in, out) << count;
      ASSERT_EQ(std::max(both[0]->source(), both[1]->source()), me.rank);
    }
  });
}

TEST_P(Collectives, AReceiveFromAnyRankTellsWhoseItWas) {
  run([](Rank me) {
    if (me.rank != 0) {
      std::vector<float> out = input(me.rank, 100);
      me.communicator.run({.collective = Collective::kSend,
                           .type = DataType::kFloat32,
                           .root = 0,
                           .tag = 5,
                           .input = Layout::even(region(out), 1, kFloat)});
      return;
    }
    std::vector<bool> heard(static_cast<size_t>(me.size), false);
    for (int i = 1; i < me.size; ++i) {
      std::vector<float> in(100, -1.0f);
      const auto operation =
          me.communicator.prepare({.collective = Collective::kRecv,
                                   .type = DataType::kFloat32,
                                   .root = kAnySource,
                                   .tag = 5,
                                   .output = Layout::even(region(in), 1, kFloat)});
      me.communicator.launch({&operation, 1}, true);
      ASSERT_TRUE(me.communicator.engine().wait(*operation, Deadline::never()));
      ASSERT_EQ(operation->error(), nullptr);
      const int source = operation->source();
      ASSERT_GT(source, 0);
      EXPECT_FALSE(heard[static_cast<size_t>(source)]);
      heard[static_cast<size_t>(source)] = true;
      EXPECT_EQ(in, input(source, 100));
    }
  });
}

TEST_P(Collectives, SixteenOutstandingInTwoGroupsInterleaved) {
  run([](Rank me) {
    std::vector<int> everyone(static_cast<size_t>(me.size));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto other = me.communicator.split(everyone, "other");
    constexpr size_t kEach = 16, kCount = 5003;
    std::vector<std::vector<float>> data;
    for (size_t i = 0; i < 2 * kEach; ++i) data.push_back(input(me.rank, kCount, i));
    std::vector<std::shared_ptr<Operation>> operations(2 * kEach);
    const auto start = [&](Communicator& group, size_t i) {
      operations[i] = group.prepare({.collective = Collective::kAllReduce,
                                     .type = DataType::kFloat32,
                                     .input = Layout::even(region(data[i]), 1, kFloat),
                                     .output = Layout::even(region(data[i]), 1, kFloat)});
      group.launch({&operations[i], 1}, false);
    };
    // The order within a group is the same everywhere, the order between the groups is not.
    for (size_t i = 0; i < kEach; ++i) {
      if (me.rank % 2 == 0)
        start(me.communicator, i), start(*other, kEach + i);
      else
        start(*other, kEach + i), start(me.communicator, i);
    }
    for (size_t k = 0; k < 2 * kEach; ++k) {
      const size_t i = me.rank % 2 == 0 ? k : 2 * kEach - 1 - k;
      ASSERT_TRUE(
          me.communicator.engine().wait(*operations[i], Deadline::after(std::chrono::seconds(20))));
      ASSERT_EQ(operations[i]->error(), nullptr) << operations[i]->error()->message;
    }
    for (size_t i = 0; i < 2 * kEach; ++i) {
      std::vector<float> expected(kCount, 0.0f);
      for (int r = 0; r < me.size; ++r)
        for (size_t k = 0; k < kCount; ++k) expected[k] += float_of(r, i + k);
      ASSERT_EQ(data[i], expected) << i;
    }
  });
}

TEST_P(Collectives, ABarrierHoldsEverybodyUntilTheLastCame) {
  std::atomic<int> arrived{0};
  run([&](Rank me) {
    for (int i = 1; i <= 20; ++i) {
      ++arrived;
      me.communicator.run({.collective = Collective::kBarrier});
      ASSERT_GE(arrived.load(), i * me.size);
    }
  });
}

TEST_P(Collectives, SplitGroupsWorkSideBySide) {
  run([](Rank me) {
    std::vector<int> same;
    for (int r = me.rank % 2; r < me.size; r += 2) same.push_back(r);
    const auto half = me.communicator.split(same, "half");
    std::vector<float> one(3, 1.0f);
    half->run({.collective = Collective::kAllReduce,
               .type = DataType::kFloat32,
               .input = Layout::even(region(one), 1, kFloat),
               .output = Layout::even(region(one), 1, kFloat)});
    EXPECT_EQ(one, std::vector<float>(3, static_cast<float>(same.size())));
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const char* transport : {"shm", "tcp"}) all.push_back({ranks, transport, 1 << 20});
  all.push_back({2, "shm", 4096});  // many slices
  all.push_back({3, "tcp", 4096});
  all.push_back({4, "shm", 1000});
  return all;
}

INSTANTIATE_TEST_SUITE_P(, Collectives, ::testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.transport + "_" + std::to_string(test.param.ranks) + "_ranks_slices_of_" +
         std::to_string(test.param.slice_bytes);
});

}  // namespace
}  // namespace hccl_like
