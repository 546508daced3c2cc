#include "transport/shm/sleeper.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace hccl_like {
namespace {

// The protocol of sleeper.h, step by step, as one waker and one sleeper run it, and every way to
// interleave the two. With full fences between the store and the load on both sides, which is what
// the class has, sequential consistency is the right model.
constexpr int kItems = 3;

struct Model {
  int waker = 0, sleeper = 0;  // program counters
  int written = 0, seen = 0;   // the index, and how far the sleeper has come
  int armed = 0, rings = 0;    // the flag, and the doorbell's count
  auto operator<=>(const Model&) const = default;
};

enum class Order { kArmThenLook, kLookThenArm };

// The next state of one side; the same state if it can't move.
Model wake(Model m) {
  switch (m.waker) {
    case 0:  // store the index
      if (m.written == kItems) return m;
      ++m.written;
      m.waker = 1;
      return m;
    case 1:  // is it armed
      m.waker = m.armed ? 2 : 0;
      return m;
    case 2:  // disarm; did it still hold
      m.waker = m.armed ? 3 : 0;
      m.armed = 0;
      return m;
    default:  // ring
      ++m.rings;
      m.waker = 0;
      return m;
  }
}

Model sleep(Model m, Order order) {
  const bool nothing = m.seen == m.written;
  switch (m.sleeper) {
    case 0:  // work
      if (m.seen == kItems) return m;
      if (nothing) m.sleeper = 1;
      m.seen = m.written;
      return m;
    case 1:
      if (order == Order::kArmThenLook) m.armed = 1;
      m.sleeper = order == Order::kArmThenLook || nothing ? 2 : 0;
      return m;
    case 2:
      if (order == Order::kLookThenArm) m.armed = 1;
      m.sleeper = order == Order::kLookThenArm || nothing ? 3 : 4;
      return m;
    case 3:  // asleep
      if (m.rings == 0) return m;
      m.rings = 0;
      m.sleeper = 4;
      return m;
    default:  // disarm
      m.armed = 0;
      m.sleeper = 0;
      return m;
  }
}

// How many of the reachable states are final, and how many of these have lost an item.
struct Outcome {
  int finals = 0, lost = 0;
};
Outcome explore(Order order) {
  Outcome outcome;
  std::set<Model> known{{}};
  for (std::vector<Model> open{{}}; !open.empty();) {
    const Model m = open.back();
    open.pop_back();
    const std::array next{wake(m), sleep(m, order)};
    if (next[0] == m && next[1] == m) {
      ++outcome.finals;
      outcome.lost += m.seen != kItems;
    }
    for (const Model& n : next)
      if (known.insert(n).second) open.push_back(n);
  }
  return outcome;
}

TEST(Sleeper, NoInterleavingLosesAWakeUp) {
  const Outcome outcome = explore(Order::kArmThenLook);
  EXPECT_GT(outcome.finals, 0);
  EXPECT_EQ(outcome.lost, 0);
}

TEST(Sleeper, TheModelWouldNoticeAWrongOrder) { EXPECT_GT(explore(Order::kLookThenArm).lost, 0); }

TEST(Sleeper, OneSleepCostsOneRing) {
  Sleeper sleeper;
  EXPECT_FALSE(sleeper.must_wake());
  sleeper.arm();
  EXPECT_TRUE(sleeper.must_wake());
  EXPECT_FALSE(sleeper.must_wake());
  sleeper.arm();
  sleeper.disarm();
  EXPECT_FALSE(sleeper.must_wake());
}

}  // namespace
}  // namespace hccl_like
