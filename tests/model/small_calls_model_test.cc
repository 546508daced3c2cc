// The protocol of all_reduce_small (device/plugin.h), as device/cuda/small_calls.h has it, in every
// execution: flags and payloads that are there twice, and no other barrier. Nobody reads a payload
// before it is there or while it is written over, and no flag is of another call.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <string>

#include "tests/model/modelled_std.h"
#include "tests/model/verdict.h"

namespace hccl_like::model {
namespace {

constexpr size_t kMostRanks = 4;

// A rank's area.
struct Area {
  struct Half {
    Plain payload;
    std::array<Plain, kMostRanks> fingerprints;           // by rank that stores it
    std::array<std::atomic<uint64_t>, kMostRanks> flags;  // numbers of calls
  };
  std::array<Half, 2> halves;
};

struct Job {
  size_t ranks = 0;
  uint64_t calls = 0;
  uint64_t used_halves = 2;
  std::array<Area, kMostRanks> areas;
  std::array<size_t, kMostRanks> bells{};

  Area::Half& half(size_t of, uint64_t number) { return areas[of].halves[number % used_halves]; }

  void tell(size_t self, uint64_t number) {
    for (size_t peer = 0; peer < ranks; ++peer) {
      if (peer == self) continue;
      half(peer, number).fingerprints[self].write();
      half(peer, number).flags[self].store(number, std::memory_order_release);
    }
  }
  void await(size_t self, uint64_t number) {
    for (size_t peer = 0; peer < ranks; ++peer) {
      if (peer == self) continue;
      uint64_t told = 0;
      do {
        Explorer::active()->landmark(number * kMostRanks + peer);
        told = half(self, number).flags[peer].load(std::memory_order_acquire);
      } while (told < number);
      check(told == number, "a flag is of a later call");
      half(self, number).fingerprints[peer].read();
    }
  }
  // The ranks have agreed on their areas. Besides, a loop that looks at what nobody else has
  // touched yet would not let others run.
  void meet(size_t self) {
    Explorer& explorer = *Explorer::active();
    const auto here = std::source_location::current();
    if (self > 0) explorer.sleep(bells[self], here);
    for (size_t peer = 0; peer < ranks; ++peer) {
      if (peer == self) continue;
      for (Area::Half& half : areas[peer].halves)
        half.flags[self].store(0, std::memory_order_relaxed);
      for (Area::Half& half : areas[self].halves)
        (void)half.flags[peer].load(std::memory_order_relaxed);
    }
    if (self + 1 < ranks)
      return explorer.ring(bells[self + 1], here), explorer.sleep(bells[self], here);
    for (size_t peer = 0; peer < self; ++peer) explorer.ring(bells[peer], here);
  }
  void run(size_t self) {
    meet(self);
    for (uint64_t number = 1; number <= calls; ++number) {
      Explorer::active()->landmark(number * kMostRanks + kMostRanks);
      half(self, number).payload.write();
      tell(self, number);
      await(self, number);
      for (size_t peer = 0; peer < ranks; ++peer) half(peer, number).payload.read();
    }
  }
};

Verdict explore(size_t ranks, uint64_t calls, uint64_t halves = 2, Flaw flaw = {}) {
  return Explorer::explore(
      [=](Explorer& explorer) {
        const auto job = std::make_shared<Job>();
        job->ranks = ranks;
        job->calls = calls;
        job->used_halves = halves;
        for (size_t& bell : job->bells) bell = explorer.add_bell();
        for (size_t rank = 0; rank < ranks; ++rank)
          explorer.thread("rank " + std::to_string(rank), [=] { job->run(rank); });
      },
      flaw);
}

TEST(SmallCallsModel, EveryPayloadIsReadWhileItIsThere) {
  EXPECT_TRUE(holds(explore(2, 8), 70, kMany));
  EXPECT_TRUE(holds(explore(3, 5), 800, kMany));
  EXPECT_TRUE(holds(explore(4, 2), 5'000, kMany));
}

TEST(SmallCallsModel, FlagsMustBeReleasedAndAcquired) {
  for (const char* function : {"Job::tell", "Job::await"})
    EXPECT_TRUE(fails_with(explore(2, 2, 2, {.relaxed_inside = function}), kRace)) << function;
}

TEST(SmallCallsModel, OnePayloadIsNotEnough) {
  EXPECT_TRUE(fails_with(explore(2, 2, 1), "a flag is of a later call"));
}

}  // namespace
}  // namespace hccl_like::model
