// Large calls of one host when a rank has no staging buffer of shared memory left: they go by
// messages, and no rank waits for a staging buffer.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/testing/large_calls.h"
#include "collectives/testing/on_ranks.h"

namespace hccl_like {
namespace {

using namespace testing;

using Ints = std::vector<int32_t>;

Layout whole(Ints& data) { return Layout::even(region(data), 1, kInt); }
Layout chunks(Ints& data, int ranks) {
  return Layout::even(region(data), static_cast<size_t>(ranks), kInt);
}
Layout own(Ints& data, int rank) {
  const Region all = region(data);
  return Layout::single({&all, 1}, static_cast<size_t>(rank), kInt);
}

// All staging buffers of a rank, while it exists.
class AllStagingBuffers {
 public:
  explicit AllStagingBuffers(Rank me)
      : staging_buffers_(me.runtime.mesh().commons()->staging_buffers()) {
    while (const auto staging_buffer = staging_buffers_.take()) taken_.push_back(*staging_buffer);
  }
  ~AllStagingBuffers() {
    for (const uint32_t staging_buffer : taken_) staging_buffers_.give_back(staging_buffer);
  }
  size_t count() const { return taken_.size(); }

 private:
  Shelf& staging_buffers_;
  std::vector<uint32_t> taken_;
};

void barrier(Rank me) { me.communicator.run({.collective = Collective::kBarrier}); }

void check_collectives(Rank me, size_t count) {
  const int n = me.size, r = me.rank;
  const auto all = count * static_cast<size_t>(n);
  Ints sums(count), mine(count), gathered(all, -1), given(all), got(all, -1);
  for (size_t i = 0; i < count; ++i) sums[i] = mine[i] = value(r, 0, i);
  for (int to = 0; to < n; ++to)
    for (size_t i = 0; i < count; ++i) given[static_cast<size_t>(to) * count + i] = value(r, to, i);
  me.communicator.run({.collective = Collective::kAllReduce,
                       .type = DataType::kInt32,
                       .input = whole(sums),
                       .output = whole(sums)});
  me.communicator.run({.collective = Collective::kAllGather,
                       .type = DataType::kInt32,
                       .input = own(mine, r),
                       .output = chunks(gathered, n)});
  me.communicator.run({.collective = Collective::kAllToAll,
                       .type = DataType::kInt32,
                       .input = chunks(given, n),
                       .output = chunks(got, n)});
  Ints told = r == 1 ? mine : Ints(count, -1);
  me.communicator.run({.collective = Collective::kBroadcast,
                       .type = DataType::kInt32,
                       .root = 1,
                       .input = whole(told),
                       .output = whole(told)});
  for (size_t i = 0; i < count; ++i) {
    int32_t sum = 0;
    for (int from = 0; from < n; ++from) {
      sum += value(from, 0, i);
      const size_t at = static_cast<size_t>(from) * count + i;
      ASSERT_EQ(gathered[at], value(from, 0, i)) << from;
      ASSERT_EQ(got[at], value(from, r, i)) << from;
    }
    ASSERT_EQ(sums[i], sum);
    ASSERT_EQ(told[i], value(1, 0, i));
  }
  // Sizes that only each pair knows: rank r gives rank t so many numbers as r + 2 t thousands.
  const auto pair = [](int from, int to) { return static_cast<size_t>(1'000 * (from + 2 * to)); };
  std::vector<Ints> to_each, from_each;
  std::vector<Region> inputs, outputs;
  for (int peer = 0; peer < n; ++peer) {
    to_each.emplace_back(pair(r, peer), value(r, peer, 7));
    from_each.emplace_back(pair(peer, r), -1);
  }
  for (Ints& one : to_each) inputs.push_back(region(one));
  for (Ints& one : from_each) outputs.push_back(region(one));
  me.communicator.run({.collective = Collective::kAllToAll,
                       .type = DataType::kInt32,
                       .uneven = true,
                       .input = Layout::list(std::move(inputs), kInt),
                       .output = Layout::list(std::move(outputs), kInt)});
  for (int from = 0; from < n; ++from)
    ASSERT_EQ(from_each[static_cast<size_t>(from)], Ints(pair(from, r), value(from, r, 7)));
}

TEST(DirectLanes, ACallForWhichARankHasNoneGoesByMessages) {
  for (const int ranks : {2, 3}) {
    on_ranks(ranks, Config{}, [](Rank me) {
      barrier(me);
      for (const size_t count : {size_t{1'000}, size_t{100'003}}) {
        std::optional<AllStagingBuffers> taken;
        if (me.rank == 1) {
          taken.emplace(me);
          ASSERT_GT(taken->count(), 0u);
        }
        barrier(me);
        check_collectives(me, count);
        barrier(me);
        taken.reset();
        check_collectives(me, count);
      }
    });
  }
}

// More calls than there are staging buffers, which the two ranks begin in opposite order of their
// groups.
TEST(DirectLanes, ManyGroupsThatCallInOppositeOrderDoNotWaitForEachOthersLanes) {
  constexpr int kGroups = 32;
  constexpr size_t kCalls = 8, kCount = 2'000;
  static_assert(kGroups * kCalls > Commons::kStagingBuffers);
  on_ranks(2, Config{}, [](Rank me) {
    barrier(me);
    std::vector<std::shared_ptr<Communicator>> groups;
    for (int i = 0; i < kGroups; ++i)
      groups.push_back(me.communicator.split(std::vector<int>{0, 1}, "part " + std::to_string(i)));
    std::vector<Ints> data(kGroups * kCalls);
    std::vector<std::shared_ptr<Operation>> operations(data.size());
    for (int i = 0; i < kGroups; ++i) {
      const auto group = static_cast<size_t>(me.rank == 0 ? i : kGroups - 1 - i);
      for (size_t at = group * kCalls; at < (group + 1) * kCalls; ++at) {
        data[at].assign(kCount, static_cast<int32_t>(at) + me.rank);
        operations[at] = groups[group]->prepare({.collective = Collective::kAllReduce,
                                                 .type = DataType::kInt32,
                                                 .input = whole(data[at]),
                                                 .output = whole(data[at]),
                                                 .timeout = std::chrono::seconds(15)});
        groups[group]->launch({&operations[at], 1}, /*waited_for=*/false);
      }
    }
    for (size_t at = 0; at < operations.size(); ++at) {
      ASSERT_TRUE(
          me.runtime.engine().wait(*operations[at], Deadline::after(std::chrono::seconds(20))));
      ASSERT_EQ(operations[at]->error(), nullptr) << to_string(*operations[at]->error());
      ASSERT_EQ(data[at], Ints(kCount, 2 * static_cast<int32_t>(at) + 1));
    }
  });
}

}  // namespace
}  // namespace hccl_like
