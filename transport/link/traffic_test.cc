#include "transport/link/traffic.h"

#include <gtest/gtest.h>

#include <array>

#include "core/counters/counter_file.h"

namespace hccl_like {
namespace {

constexpr std::array<std::string_view, 1> kKinds{"all_reduce"};

TEST(Waits, CountForAllPeersThatAreAwaitedUntilACallGoesOn) {
  const auto file = CounterFile::make(kKinds);
  Traffic first, second, uncounted;
  first.count_in(*file->add_peer(1));
  second.count_in(*file->add_peer(2));
  Waits waits;
  const auto counted = [&](const Traffic& traffic) { return traffic.counted_in()->waited.load(); };
  const auto await_both_until_the_clock_moves = [&] {
    waits.look();
    for (const Traffic* one : {&first, &second, &first, &uncounted}) waits.await(*one);
    const auto began = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() == began) continue;
  };
  await_both_until_the_clock_moves();
  waits.end();
  waits.look();
  EXPECT_EQ(counted(first), 0) << "a call went on";
  await_both_until_the_clock_moves();
  waits.look();
  const uint64_t both = counted(first);
  EXPECT_GT(both, 0);
  EXPECT_EQ(counted(second), both) << "both for the same time";
  waits.await(second);
  waits.look();
  EXPECT_EQ(counted(first), both);
  EXPECT_GE(counted(second), both);
}

}  // namespace
}  // namespace hccl_like
