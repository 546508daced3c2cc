#include "core/machine/backoff.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

uint32_t waits(uint32_t spins, uint32_t yields, bool own_core) {
  Config config;
  config.spins = spins;
  config.yields = yields;
  Backoff backoff(config, own_core);
  uint32_t waits = 0;
  while (backoff.wait()) ++waits;
  return waits;
}

TEST(Backoff, SleepsAfterItsPollsAndYields) {
  EXPECT_EQ(waits(3, 0, /*own_core=*/false), 3u);
  EXPECT_EQ(waits(3, 2, /*own_core=*/false), 5u);
}

// Eight yields pass between two looks at the clock, however long they take.
TEST(Backoff, YieldsForLongerOnACoreOfItsOwn) {
  EXPECT_GE(waits(3, 1, /*own_core=*/true), 3u + 8u);
  EXPECT_LE(waits(3, 1, /*own_core=*/true), 3u + 100u);
}

TEST(Backoff, SleepsAtOnceIfItMustNotYield) {
  EXPECT_EQ(waits(3, 0, /*own_core=*/true), 3u);
  EXPECT_EQ(waits(0, 0, /*own_core=*/true), 0u);
}

}  // namespace
}  // namespace hccl_like
