// Large calls of one host whose chunks differ in size, and premul-sums: exactly, whoever can map
// whose memory.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "collectives/testing/large_calls.h"
#include "collectives/testing/on_ranks.h"

namespace hccl_like {
namespace {

using namespace testing;

class DirectUneven : public ::testing::TestWithParam<DirectCase> {};
INSTANTIATE_TEST_SUITE_P(, DirectUneven, all_settings());

// Side by side in one piece of memory.
class Rows {
 public:
  template <class Count>
  Rows(int ranks, const Count& count)
      : begins_(static_cast<size_t>(ranks) + 1), numbers_(fill(ranks, count), -1) {}

  Region region(int row) {
    const size_t begin = this->begin(row);
    return {reinterpret_cast<std::byte*>(&numbers_[begin]), (this->begin(row + 1) - begin) * kInt};
  }
  Region all() { return numbers_.region(); }
  int32_t& at(int row, size_t i) { return numbers_[begin(row) + i]; }
  Layout layout() {
    std::vector<Region> rows;
    for (int row = 0; row + 1 < std::ssize(begins_); ++row) rows.push_back(region(row));
    return Layout::list(std::move(rows), kInt);
  }

 private:
  size_t begin(int row) const { return begins_[static_cast<size_t>(row)]; }
  template <class Count>
  size_t fill(int ranks, const Count& count) {
    for (int row = 0; row < ranks; ++row)
      begins_[static_cast<size_t>(row) + 1] = begin(row) + count(row);
    return begins_.back();
  }

  std::vector<size_t> begins_;
  Numbers numbers_;
};

const std::vector<size_t> kUnits{5, 1'001, 60'007};

TEST_P(DirectUneven, AllToAllTransposes) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    const int r = me.rank;
    for (const size_t unit : kUnits) {
      Rows in(me.size, [&](int to) { return uneven_count(r, to, unit); });
      Rows out(me.size, [&](int from) { return uneven_count(from, r, unit); });
      for (int to = 0; to < me.size; ++to)
        for (size_t i = 0; i < uneven_count(r, to, unit); ++i) in.at(to, i) = value(r, to, i);
      Call call{.collective = Collective::kAllToAll,
                .type = DataType::kInt32,
                .uneven = true,
                .input = in.layout(),
                .output = out.layout()};
      share(call, sharing, r, in.all(), out.all());
      me.communicator.run(std::move(call));
      for (int from = 0; from < me.size; ++from)
        for (size_t i = 0; i < uneven_count(from, r, unit); ++i)
          ASSERT_EQ(out.at(from, i), value(from, r, i)) << i << " from " << from << ", " << unit;
    }
  });
}

TEST_P(DirectUneven, ListsAreGatheredAndReduced) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    const int r = me.rank;
    for (const size_t unit : kUnits) {
      const auto size = [&](int rank) { return uneven_count(rank, 1, unit); };
      Rows all(me.size, size);
      Numbers mine(size(r), 0), sum(size(r), -1);
      for (size_t i = 0; i < size(r); ++i) mine[i] = value(r, 0, i);
      const Region own = mine.region(), reduced = sum.region();
      Call gather{.collective = Collective::kAllGather,
                  .type = DataType::kInt32,
                  .input = Layout::single({&own, 1}, static_cast<size_t>(r), kInt),
                  .output = all.layout()};
      share(gather, sharing, r, own, all.all());
      me.communicator.run(std::move(gather));
      for (int from = 0; from < me.size; ++from)
        for (size_t i = 0; i < size(from); ++i)
          ASSERT_EQ(all.at(from, i), value(from, 0, i)) << i << " from " << from << ", " << unit;

      for (int to = 0; to < me.size; ++to)
        for (size_t i = 0; i < size(to); ++i) all.at(to, i) = value(r, to, i);
      Call scatter{.collective = Collective::kReduceScatter,
                   .type = DataType::kInt32,
                   .input = all.layout(),
                   .output = Layout::single({&reduced, 1}, static_cast<size_t>(r), kInt)};
      share(scatter, sharing, r, all.all(), reduced);
      me.communicator.run(std::move(scatter));
      for (size_t i = 0; i < size(r); ++i) {
        int32_t expected = 0;
        for (int from = 0; from < me.size; ++from) expected += value(from, r, i);
        ASSERT_EQ(sum[i], expected) << i << ", " << unit;
      }
    }
  });
}

TEST_P(DirectUneven, TheRootGathersAndScatters) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    const int r = me.rank, root = me.size - 1;
    for (const size_t unit : kUnits) {
      const auto size = [&](int rank) { return uneven_count(rank, 2, unit); };
      Rows all(me.size, [&](int rank) { return r == root ? size(rank) : 0; });
      Numbers mine(size(r), 0), back(size(r), -1);
      for (size_t i = 0; i < size(r); ++i) mine[i] = value(r, 0, i);
      const Region own = mine.region(), returned = back.region();
      Call gather{.collective = Collective::kGather,
                  .type = DataType::kInt32,
                  .root = root,
                  .uneven = true,
                  .input = Layout::single({&own, 1}, static_cast<size_t>(r), kInt)};
      if (r == root) gather.output = all.layout();
      share(gather, sharing, r, own, all.all());
      me.communicator.run(std::move(gather));
      for (int from = 0; r == root && from < me.size; ++from)
        for (size_t i = 0; i < size(from); ++i) ASSERT_EQ(all.at(from, i), value(from, 0, i));

      Call scatter{.collective = Collective::kScatter,
                   .type = DataType::kInt32,
                   .root = root,
                   .uneven = true,
                   .output = Layout::single({&returned, 1}, static_cast<size_t>(r), kInt)};
      if (r == root) scatter.input = all.layout();
      share(scatter, sharing, r, all.all(), returned);
      me.communicator.run(std::move(scatter));
      for (size_t i = 0; i < size(r); ++i) ASSERT_EQ(back[i], value(r, 0, i)) << unit;
    }
  });
}

// A premul-sum scales copies: its inputs stay as they are.
TEST_P(DirectUneven, PremulSumsAreExact) {
  const auto [ranks, sharing] = GetParam();
  on_ranks(ranks, Config{}, [&](Rank me) {
    for (const size_t count : {size_t{399}, size_t{1'001}, size_t{300'007}}) {
      Numbers in(count, 0), out(count, -1);  // of which the bits are floats
      const auto floats = [](Numbers& numbers) { return reinterpret_cast<float*>(&numbers[0]); };
      const auto given = [](int rank, size_t i) {
        return static_cast<float>(rank + 1) * static_cast<float>(i % 1'021);
      };
      for (size_t i = 0; i < count; ++i) floats(in)[i] = given(me.rank, i);
      Call call{.collective = Collective::kAllReduce,
                .type = DataType::kFloat32,
                .op = ReduceOp::kPreMulSum,
                .factor = 0.25,
                .input = Layout::even(in.region(), 1, kInt),
                .output = Layout::even(out.region(), 1, kInt)};
      share(call, sharing, me.rank, in.region(), out.region());
      me.communicator.run(std::move(call));
      for (size_t i = 0; i < count; ++i) {
        float expected = 0;
        for (int rank = 0; rank < me.size; ++rank) expected += 0.25f * given(rank, i);
        ASSERT_EQ(floats(out)[i], expected) << i << " of " << count;
        ASSERT_EQ(floats(in)[i], given(me.rank, i));
      }
    }
  });
}

// Two ranks that disagree about their pair: nothing is moved, and each is told the sizes.
TEST(DirectUnevenMistakes, OfOnePairAreToldWithItsSizes) {
  for (const Sharing sharing : {Sharing::kNobody, Sharing::kOutputs, Sharing::kEverybody}) {
    on_ranks(2, Config{}, [&](Rank me) {
      const int other = 1 - me.rank;
      // Rank 0 gives 1,000 numbers, of which rank 1 expects 900.
      Rows in(2, [&](int to) { return size_t{to == me.rank ? 0u : 1'000u}; });
      Rows out(2, [&](int from) {
        return size_t{from == me.rank ? 0u : me.rank == 1 ? 900u : 1'000u};
      });
      Call call{.collective = Collective::kAllToAll,
                .type = DataType::kInt32,
                .uneven = true,
                .input = in.layout(),
                .output = out.layout()};
      share(call, sharing, me.rank, in.all(), out.all());
      try {
        me.communicator.run(std::move(call));
        FAIL() << "two sizes went together";
      } catch (const Exception& error) {
        const std::string said = error.what();
        EXPECT_NE(said.find("exchange 1000 elements"), std::string::npos) << said;
        EXPECT_NE(said.find("exchange 900 elements"), std::string::npos) << said;
      }
      for (size_t i = 0; i < 900; ++i) ASSERT_EQ(out.at(other, i), -1);
    });
  }
}

// Chunks of other sizes that add up to as many bytes.
TEST(DirectUnevenMistakes, OfAListAreTold) {
  on_ranks(2, Config{}, [](Rank me) {
    Rows in(2, [&](int to) { return size_t{to == me.rank ? 600u : 1'000u}; });
    Numbers out(600, -1);
    const Region region = out.region();
    EXPECT_THROW(me.communicator.run(
                     {.collective = Collective::kReduceScatter,
                      .type = DataType::kInt32,
                      .input = in.layout(),
                      .output = Layout::single({&region, 1}, static_cast<size_t>(me.rank), kInt)}),
                 Exception);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], -1);
  });
}

}  // namespace
}  // namespace hccl_like
