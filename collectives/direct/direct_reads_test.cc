// Large exchanges of memory that nobody can map: through the kernel or through lanes, as a group has found faster.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <barrier>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/direct/direct_testing.h"
#include "collectives/testing.h"
#include "core/pace.h"
#include "core/testing/kernel_reads.h"

namespace hccl_like {
namespace {

using namespace testing;

class DirectReads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, DirectReads, ::testing::Values(2, 3, 5));

// More calls than both ways are tried for, so that each of them is taken.
TEST_P(DirectReads, ExchangeExactlyWhicheverWayIsTaken) {
  constexpr int kCalls = 6;
  on_ranks(GetParam(), Config{}, [](Rank me) {
    const int r = me.rank;
    const auto chunks = static_cast<size_t>(me.size), own = static_cast<size_t>(r);
    for (const size_t count : {Pace::kLeast / kInt, size_t{200'003}}) {
      std::vector<int32_t> given(count * chunks), taken(count * chunks);
      for (int k = 0; k < kCalls; ++k) {
        for (int to = 0; to < me.size; ++to)
          for (size_t i = 0; i < count; ++i)
            given[static_cast<size_t>(to) * count + i] = value(r, to, i) + k;
        std::ranges::fill(taken, -1);
        me.communicator.run({.collective = Collective::kAllToAll,
                             .type = DataType::kInt32,
                             .input = Layout::even(region(given), chunks, kInt),
                             .output = Layout::even(region(taken), chunks, kInt)});
        for (int from = 0; from < me.size; ++from)
          for (size_t i = 0; i < count; ++i)
            ASSERT_EQ(taken[static_cast<size_t>(from) * count + i], value(from, r, i) + k);

        std::vector<int32_t> mine(given.begin(), given.begin() + static_cast<ptrdiff_t>(count));
        const Region single = region(mine);
        me.communicator.run({.collective = Collective::kAllGather,
                             .type = DataType::kInt32,
                             .input = Layout::single({&single, 1}, own, kInt),
                             .output = Layout::even(region(taken), chunks, kInt)});
        for (int from = 0; from < me.size; ++from)
          for (size_t i = 0; i < count; ++i)
            ASSERT_EQ(taken[static_cast<size_t>(from) * count + i], value(from, 0, i) + k);
      }
    }
  });
}

// Every other rank gives nothing at all to some, and so tells no place: then all take the lanes.
TEST_P(DirectReads, AnExchangeInWhichOneGivesNothingIsExact) {
  on_ranks(GetParam(), Config{}, [](Rank me) {
    constexpr size_t kCount = 150'001;
    const int r = me.rank;
    const auto sizes = [&](bool give) {
      std::vector<size_t> found;
      for (int other = 0; other < me.size; ++other)
        found.push_back((give ? r : other) == 0 ? 0
                                                : kCount + static_cast<size_t>(give ? other : r));
      return found;
    };
    const auto layout = [](std::vector<int32_t>& memory, const std::vector<size_t>& counts) {
      std::vector<Region> regions;
      size_t at = 0;
      for (const size_t count : counts) {
        regions.push_back({reinterpret_cast<std::byte*>(memory.data() + at), count * kInt});
        at += count;
      }
      return Layout::list(std::move(regions), kInt);
    };
    const size_t room = (kCount + 8) * static_cast<size_t>(me.size);
    for (int k = 0; k < 4; ++k) {
      std::vector<int32_t> given(room, r * 1'000 + k), taken(room, -1);
      me.communicator.run({.collective = Collective::kAllToAll,
                           .type = DataType::kInt32,
                           .uneven = true,
                           .input = layout(given, sizes(true)),
                           .output = layout(taken, sizes(false))});
      size_t at = 0;
      for (int from = 0; from < me.size; ++from)
        for (size_t i = 0; i < sizes(false)[static_cast<size_t>(from)]; ++i)
          ASSERT_EQ(taken[at++], from * 1'000 + k);
      for (; at < room; ++at) ASSERT_EQ(taken[at], -1);
    }
  });
}

// The first call of a size goes through the kernel.
TEST(DirectReading, MemoryThatTheKernelDoesNotReadIsAnErrorThatSaysSo) {
  if (!kernel_reads()) GTEST_SKIP() << "the system does not let processes read each other";
  std::barrier both(2);
  on_ranks(2, Config{}, [&](Rank me) {
    constexpr size_t kBytes = 2 * Pace::kLeast;
    void* const memory =
        ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* const given = static_cast<std::byte*>(memory);
    // What rank 1 gives to rank 0, which only that one reads.
    if (me.rank == 1) {
      ASSERT_EQ(::mprotect(given, kBytes, PROT_NONE), 0);
    }
    std::vector<std::byte> taken(2 * kBytes);
    try {
      me.communicator.run({.collective = Collective::kAllToAll,
                           .input = Layout::even({given, 2 * kBytes}, 2, 1),
                           .output = Layout::even({taken.data(), 2 * kBytes}, 2, 1)});
      ADD_FAILURE() << "what cannot be read was read";
    } catch (const Exception& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("the memory of rank 1 cannot be read"), std::string::npos) << text;
      EXPECT_NE(text.find("alltoall"), std::string::npos) << text;
    }
    both.arrive_and_wait();  // or the other one finds what it reads of this one gone, too
    ::munmap(memory, 2 * kBytes);
  });
}

}  // namespace
}  // namespace hccl_like
