// Memory that a peer may still write to is kept, and released when it does no longer.
#include "transport/message/kept_memory.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

TEST(KeptMemory, KeepsMemoryUntilNobodyWritesToIt) {
  KeptMemory kept;
  const auto first = std::make_shared<int>(1), second = std::make_shared<int>(2);
  bool writes = true;
  kept.add(first, [&] { return writes; });
  kept.add(second, [] { return false; });
  EXPECT_EQ(kept.size(), 2u);
  kept.sweep();
  EXPECT_EQ(kept.size(), 1u);
  EXPECT_EQ(first.use_count(), 2);
  EXPECT_EQ(second.use_count(), 1);
  writes = false;
  kept.sweep();
  EXPECT_EQ(kept.size(), 0u);
  EXPECT_EQ(first.use_count(), 1);
}

}  // namespace
}  // namespace hccl_like
