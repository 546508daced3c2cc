// Large calls of one host whose inputs are several pieces of memory: exactly, and read where they
// are by all who can map them.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <span>
#include <vector>

#include "collectives/same_host/staging_buffer.h"
#include "collectives/testing/large_calls.h"
#include "collectives/testing/on_ranks.h"

namespace hccl_like {
namespace {

using namespace testing;

class DirectLists : public ::testing::TestWithParam<DirectCase> {};
INSTANTIATE_TEST_SUITE_P(, DirectLists, all_settings());

// Pieces of sizes that differ, one without anything in it, and slice ends in their middle.
const std::vector<std::vector<size_t>> kListSizes{{300, 0, 700}, {60'007, 5, 120'000, 1'001}};

// Several pieces, each in memory of its own.
class List {
 public:
  explicit List(std::span<const size_t> sizes, int32_t value = -1) {
    for (const size_t size : sizes) pieces_.emplace_back(size, value);
  }
  template <class Value>
  void fill(const Value& value) {
    size_t at = 0;
    for (Numbers& piece : pieces_)
      for (size_t i = 0; i < piece.size(); ++i) piece[i] = value(at++);
  }
  template <class Value>
  void expect(const Value& value, const char* what) {
    size_t at = 0;
    for (size_t p = 0; p < pieces_.size(); ++p)
      for (size_t i = 0; i < pieces_[p].size(); ++i)
        ASSERT_EQ(pieces_[p][i], value(at++)) << what << ", " << i << " of piece " << p;
  }
  std::vector<Region> regions() {
    std::vector<Region> all;
    for (Numbers& piece : pieces_) all.push_back(piece.region());
    return all;
  }
  Numbers& operator[](size_t i) { return pieces_[i]; }

 private:
  std::deque<Numbers> pieces_;
};

// Shares `regions` with peers under the ranges of `in_the_eyes_of_peers`: the regions themselves,
// or other memory of the same sizes.
SharedRegions shared(std::span<const Region> regions,
                     std::span<const Region> in_the_eyes_of_peers) {
  SharedRegions all;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i].bytes == 0) continue;
    EXPECT_TRUE(all.add(regions[i], exported(in_the_eyes_of_peers[i])));
  }
  return all;
}

void share_list(Call& call, Sharing sharing, int rank, List& input) {
  call.device = &testing::host();
  const bool does = sharing == Sharing::kEverybody || sharing == Sharing::kInputs ||
                    (sharing == Sharing::kEvenRanks && rank % 2 == 0);
  if (does) call.shared_regions = shared(input.regions(), input.regions());
}

TEST_P(DirectLists, AreReduced) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    for (const auto& sizes : kListSizes) {
      for (const bool in_place : {true, false}) {
        List in(sizes), out(sizes);
        in.fill([&](size_t i) { return value(me.rank, 0, i); });
        List& result = in_place ? in : out;
        Call call{.collective = Collective::kAllReduce,
                  .type = DataType::kInt32,
                  .input = Layout::even(in.regions(), 1, kInt),
                  .output = Layout::even(result.regions(), 1, kInt)};
        share_list(call, sharing, me.rank, in);
        me.communicator.run(std::move(call));
        result.expect([&](size_t i) { return sum_to(0, me.size, i); }, "all_reduce");
      }
    }
  });
}

TEST_P(DirectLists, AreBroadcast) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    for (const auto& sizes : kListSizes) {
      List data(sizes);
      if (me.rank == 1) data.fill([](size_t i) { return value(1, 0, i); });
      const Layout layout = Layout::even(data.regions(), 1, kInt);
      Call call{.collective = Collective::kBroadcast,
                .type = DataType::kInt32,
                .root = 1,
                .input = layout,
                .output = layout};
      share_list(call, sharing, me.rank, data);
      me.communicator.run(std::move(call));
      data.expect([](size_t i) { return value(1, 0, i); }, "broadcast");
    }
  });
}

// Collectives with a part for each rank cut each piece of a list separately, as coalesced calls do.
TEST_P(DirectLists, AreCutPieceByPiece) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    for (const auto& sizes : kListSizes) {
      std::vector<size_t> whole;
      for (const size_t size : sizes) whole.push_back(size * static_cast<size_t>(me.size));
      // Numbers by the rank of the part, and where they are in it.
      const auto number = [](int from, size_t p, int part, size_t i) {
        return value(from, part, 1'000 * p + i);
      };
      const auto own = static_cast<size_t>(me.rank);
      List parts(sizes), all(whole);
      for (size_t p = 0; p < sizes.size(); ++p)
        for (size_t i = 0; i < sizes[p]; ++i) parts[p][i] = number(me.rank, p, 0, i);
      Call gather{.collective = Collective::kAllGather,
                  .type = DataType::kInt32,
                  .input = Layout::single(parts.regions(), own, kInt),
                  .output = Layout::interleaved(all.regions(), static_cast<size_t>(me.size), kInt)};
      share_list(gather, sharing, me.rank, parts);
      me.communicator.run(std::move(gather));
      for (size_t p = 0; p < sizes.size(); ++p)
        for (int from = 0; from < me.size; ++from)
          for (size_t i = 0; i < sizes[p]; ++i)
            ASSERT_EQ(all[p][static_cast<size_t>(from) * sizes[p] + i], number(from, p, 0, i))
                << i << " of piece " << p << " from " << from;

      for (size_t p = 0; p < sizes.size(); ++p)
        for (int to = 0; to < me.size; ++to)
          for (size_t i = 0; i < sizes[p]; ++i)
            all[p][static_cast<size_t>(to) * sizes[p] + i] = number(me.rank, p, to, i);
      Call scatter{.collective = Collective::kReduceScatter,
                   .type = DataType::kInt32,
                   .input = Layout::interleaved(all.regions(), static_cast<size_t>(me.size), kInt),
                   .output = Layout::single(parts.regions(), own, kInt)};
      share_list(scatter, sharing, me.rank, all);
      me.communicator.run(std::move(scatter));
      for (size_t p = 0; p < sizes.size(); ++p)
        for (size_t i = 0; i < sizes[p]; ++i) {
          int32_t expected = 0;
          for (int from = 0; from < me.size; ++from) expected += number(from, p, me.rank, i);
          ASSERT_EQ(parts[p][i], expected) << i << " of piece " << p;
        }
    }
  });
}

TEST_P(DirectLists, HaveAPieceForEachRank) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    for (const size_t unit : {size_t{200}, size_t{60'007}}) {
      std::vector<size_t> given, taken;
      for (int rank = 0; rank < me.size; ++rank) {
        given.push_back(uneven_count(me.rank, rank, unit));
        taken.push_back(uneven_count(rank, me.rank, unit));
      }
      List in(given), out(taken);
      for (int to = 0; to < me.size; ++to)
        for (size_t i = 0; i < given[static_cast<size_t>(to)]; ++i)
          in[static_cast<size_t>(to)][i] = value(me.rank, to, i);
      Call call{.collective = Collective::kAllToAll,
                .type = DataType::kInt32,
                .uneven = true,
                .input = Layout::list(in.regions(), kInt),
                .output = Layout::list(out.regions(), kInt)};
      share_list(call, sharing, me.rank, in);
      me.communicator.run(std::move(call));
      for (int from = 0; from < me.size; ++from)
        for (size_t i = 0; i < taken[static_cast<size_t>(from)]; ++i)
          ASSERT_EQ(out[static_cast<size_t>(from)][i], value(from, me.rank, i))
              << i << " from " << from;

      // The root's list.
      const std::vector<Region> mine{out[0].region()};
      const size_t part = taken[0];
      List scattered(std::vector<size_t>{uneven_count(0, me.rank, unit)});
      const Region here = scattered[0].region();
      Call scatter{
          .collective = Collective::kScatter, .type = DataType::kInt32, .root = 0, .uneven = true};
      if (me.rank == 0) scatter.input = Layout::list(in.regions(), kInt);
      scatter.output = Layout::single({&here, 1}, static_cast<size_t>(me.rank), kInt);
      if (me.rank == 0)
        share_list(scatter, sharing, me.rank, in);
      else
        scatter.device = &testing::host();
      me.communicator.run(std::move(scatter));
      for (size_t i = 0; i < part; ++i) ASSERT_EQ(scattered[0][i], value(0, me.rank, i)) << i;
    }
  });
}

// Of two ranks what each gets if the other's list seems to lie elsewhere: tells who read what.
std::vector<int32_t> exchange_with_decoys(Rank me, std::span<const size_t> sizes,
                                          uint64_t beyond = 0) {
  List in(sizes, 1), told(sizes, 2), out(sizes);
  Call call{.collective = Collective::kAllToAll,
            .type = DataType::kInt32,
            .input = Layout::interleaved(in.regions(), 2, kInt),
            .output = Layout::interleaved(out.regions(), 2, kInt),
            .device = &testing::host()};
  SharedRegions regions;
  const auto real = in.regions(), decoys = told.regions();
  for (size_t i = 0; i < real.size(); ++i) {
    ExportedRange range = exported(decoys[i]);
    if (i + 1 == real.size() && me.rank == 1) range.offset += beyond;
    EXPECT_TRUE(regions.add(real[i], range));
  }
  call.shared_regions = std::move(regions);
  me.communicator.run(std::move(call));
  const auto other = static_cast<size_t>(1 - me.rank);
  std::vector<int32_t> got;
  for (size_t p = 0; p < sizes.size(); ++p) {
    const int32_t first = out[p][other * sizes[p] / 2];
    for (size_t i = 0; i < sizes[p] / 2; ++i) EXPECT_EQ(out[p][other * sizes[p] / 2 + i], first);
    got.push_back(first);
  }
  return got;
}

TEST(DirectListMemory, IsReadWhereItIs) {
  on_ranks(2, Config{}, [](Rank me) {
    const std::vector<size_t> sizes{60'000, 2'000, 500'000};
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(exchange_with_decoys(me, sizes), (std::vector<int32_t>{2, 2, 2}));
  });
}

TEST(DirectListMemory, OfMorePiecesThanALaneTellsGoesThroughIt) {
  on_ranks(2, Config{}, [](Rank me) {
    const std::vector<size_t> fit(InputPlaces::kMost / 2, 1'000),
        many(InputPlaces::kMost / 2 + 1, 1'000);
    ASSERT_EQ(exchange_with_decoys(me, fit), std::vector<int32_t>(fit.size(), 2));
    ASSERT_EQ(exchange_with_decoys(me, many), std::vector<int32_t>(many.size(), 1));
  });
}

// If one rank's memory cannot be read, no rank reads any peer's memory.
TEST(DirectListMemory, BeyondItsMappingIsNotTouched) {
  on_ranks(2, Config{}, [](Rank me) {
    const std::vector<size_t> sizes{60'000, 2'000};
    for (int i = 0; i < 2; ++i)  // the second time it is known
      ASSERT_EQ(exchange_with_decoys(me, sizes, uint64_t{1} << 60), (std::vector<int32_t>{1, 1}));
  });
}

TEST(SharedRegions, KnowAnAllocationOnce) {
  const auto of = [](unsigned char allocation, uint64_t offset) {
    ExportedRange range{.offset = offset};
    range.handle.bytes[7] = allocation;
    return range;
  };
  std::array<std::byte, 64> memory;
  const Region region{memory.data(), memory.size()};
  SharedRegions regions;
  for (unsigned char i = 0; i < SharedRegions::kMostHandles; ++i)
    ASSERT_TRUE(regions.add(region, of(i, i)));
  EXPECT_FALSE(regions.add(region, of(200, 0)));
  EXPECT_TRUE(regions.add(region, of(3, 4'096)));
  EXPECT_EQ(regions.handles().size(), SharedRegions::kMostHandles);
  ASSERT_EQ(regions.regions().size(), SharedRegions::kMostHandles + 1);
  EXPECT_EQ(regions.regions().back().handle, 3u);
  EXPECT_EQ(regions.regions().back().offset, 4'096u);
}

}  // namespace
}  // namespace hccl_like
