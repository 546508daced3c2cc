// Calls of one host that are larger than the last cache: exactly, whichever way they go past it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/testing/large_calls.h"
#include "collectives/testing/on_ranks.h"
#include "core/memory/copy.h"

namespace hccl_like {
namespace {

using namespace testing;

// The last cache for one test: small, so that calls past it are quick on every machine.
class SmallCache {
 public:
  SmallCache() { set_last_cache_bytes(size_t{4} << 20); }
  ~SmallCache() { set_last_cache_bytes(real_); }

 private:
  const size_t real_ = last_cache_bytes();
};

class DirectLarge : public ::testing::TestWithParam<DirectCase> {};
INSTANTIATE_TEST_SUITE_P(, DirectLarge,
                         ::testing::Values(DirectCase{2, Sharing::kNobody},
                                           DirectCase{2, Sharing::kOutputs},
                                           DirectCase{2, Sharing::kEverybody}));

// Memory is asked for what comes next, and whatever is not read before it is written goes past the
// caches.
TEST_P(DirectLarge, SumsExactlyMoreThanTheCachesHold) {
  const SmallCache cache;
  const size_t count = last_cache_bytes() / (4 * kInt) + 12'345;
  on_ranks(2, Config{}, [&](Rank me) {
    const auto expect_sums = [&](Numbers& result, size_t first, const char* of) {
      for (size_t i = 0; i < result.size(); ++i)
        ASSERT_EQ(result[i], sum_to(0, 2, first + i)) << i << " of " << count << ", " << of;
    };
    Numbers in(count, 0), out(count, -1), part(count / 2, -1);
    for (size_t i = 0; i < count; ++i) in[i] = value(me.rank, 0, i);
    const auto run = [&](Collective collective, Region input, const Layout& from, Numbers& result) {
      const Region region = result.region();
      Call call{.collective = collective, .type = DataType::kInt32, .root = 1, .input = from};
      call.output = collective == Collective::kReduceScatter
                        ? Layout::single({&region, 1}, static_cast<size_t>(me.rank), kInt)
                        : Layout::even(region, 1, kInt);
      share(call, GetParam().sharing, me.rank, input, region);
      me.communicator.run(std::move(call));
    };
    const Region whole = in.region(), even = {whole.data, count / 2 * 2 * kInt};
    const Layout one = Layout::even(whole, 1, kInt);
    run(Collective::kReduceScatter, even, Layout::even(even, 2, kInt), part);
    expect_sums(part, static_cast<size_t>(me.rank) * (count / 2), "reduce_scatter");
    run(Collective::kAllReduce, whole, one, out);
    expect_sums(out, 0, "all_reduce out of place");
    std::fill_n(&out[0], count, -1);
    run(Collective::kReduce, whole, one, me.rank == 1 ? in : out);
    if (me.rank == 1) {
      expect_sums(in, 0, "reduce in place");
      for (size_t i = 0; i < count; ++i) in[i] = value(me.rank, 0, i);
    }
    run(Collective::kAllReduce, whole, one, in);
    expect_sums(in, 0, "all_reduce in place");
  });
}

// Copies, too, of memory that is mapped or that somebody turns out not to be able to map.
class DirectLargest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, DirectLargest, ::testing::Bool());

TEST_P(DirectLargest, IsExact) {
  const bool mapped = GetParam();
  const SmallCache cache;
  const size_t count = last_cache_bytes() / (2 * kInt) + 12'345;
  on_ranks(2, Config{}, [&](Rank me) {
    const auto r = static_cast<size_t>(me.rank);
    Numbers part(count, 0), both(2 * count, -1);
    const Region one = part.region(), all = both.region();
    const auto own = [&](Region region) { return Layout::single({&region, 1}, r, kInt); };
    const auto run = [&](Collective collective, const Layout& from, Region in, const Layout& to,
                         Region out) {
      Call call{.collective = collective,
                .type = DataType::kInt32,
                .root = 1,
                .input = from,
                .output = to};
      share(call, Sharing::kEverybody, me.rank, in, out);
      if (!mapped && me.rank == 1) call.shared_input->handle.bytes[20] ^= 0x5a;
      me.communicator.run(std::move(call));
    };
    const auto fill = [&](Numbers& numbers, int to, size_t first) {
      for (size_t i = 0; i < count; ++i) numbers[first + i] = value(me.rank, to, i);
    };

    fill(part, 0, 0);
    run(Collective::kAllGather, own(one), one, Layout::even(all, 2, kInt), all);
    for (int from = 0; from < 2; ++from)
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(both[static_cast<size_t>(from) * count + i], value(from, 0, i))
            << i << " from " << from;
    fill(both, 1, r * count);
    const Region mine = both.part(r, count);
    run(Collective::kAllGather, own(mine), mine, Layout::even(all, 2, kInt), all);
    for (int from = 0; from < 2; ++from)
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(both[static_cast<size_t>(from) * count + i], value(from, 1, i))
            << i << " in place";

    for (int to = 0; to < 2; ++to) fill(both, to, static_cast<size_t>(to) * count);
    run(Collective::kReduceScatter, Layout::even(all, 2, kInt), all, own(one), one);
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(part[i], sum_to(me.rank, 2, i)) << i << " of a sum";
    Numbers swapped(2 * count, -1);
    run(Collective::kAllToAll, Layout::even(all, 2, kInt), all,
        Layout::even(swapped.region(), 2, kInt), swapped.region());
    for (int from = 0; from < 2; ++from)
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(swapped[static_cast<size_t>(from) * count + i], value(from, me.rank, i))
            << i << " from " << from;

    const Layout whole = Layout::even(one, 1, kInt);
    fill(part, 3, 0);
    run(Collective::kAllReduce, whole, one, whole, one);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], sum_to(3, 2, i)) << i << " of all_reduce";
    fill(part, 4, 0);
    run(Collective::kBroadcast, whole, one, whole, one);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], value(1, 4, i)) << i << " of broadcast";
  });
}

// The sizes differ from pair to pair, so the ranks tell each other the number of slices.
TEST(DirectLargestPairs, MayDiffer) {
  const SmallCache cache;
  const size_t unit = last_cache_bytes() / (3 * kInt) + 12'345;
  on_ranks(2, Config{}, [&](Rank me) {
    // Rank 0 keeps two units and takes one, rank 1 keeps one and takes three.
    const std::vector<size_t> given =
        me.rank == 0 ? std::vector{2 * unit, 3 * unit} : std::vector{unit, unit};
    const std::vector<size_t> taken =
        me.rank == 0 ? std::vector{2 * unit, unit} : std::vector{3 * unit, unit};
    Numbers in(given[0] + given[1], 0), out(taken[0] + taken[1], -1);
    const auto layout = [](Numbers& numbers, const std::vector<size_t>& counts) {
      const Region all = numbers.region();
      return Layout::list(
          {{all.data, counts[0] * kInt}, {all.data + counts[0] * kInt, counts[1] * kInt}}, kInt);
    };
    for (size_t i = 0; i < in.size(); ++i)
      in[i] = i < given[0] ? value(me.rank, 0, i) : value(me.rank, 1, i - given[0]);
    Call call{.collective = Collective::kAllToAll,
              .type = DataType::kInt32,
              .uneven = true,
              .input = layout(in, given),
              .output = layout(out, taken)};
    share(call, Sharing::kEverybody, me.rank, in.region(), out.region());
    me.communicator.run(std::move(call));
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], i < taken[0] ? value(0, me.rank, i) : value(1, me.rank, i - taken[0])) << i;
  });
}

}  // namespace
}  // namespace hccl_like
