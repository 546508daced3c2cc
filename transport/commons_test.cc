#include "transport/commons.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "core/error.h"
#include "transport/shm/memory.h"

namespace hccl_like {
namespace {

PeerCommons seen_by_a_peer(const Commons& commons) {
  return PeerCommons(Fd(::fcntl(commons.fd(), F_DUPFD_CLOEXEC, 0)));
}

TEST(Commons, ShowsWhatItsOwnerWrites) {
  Commons commons;
  const PeerCommons peer = seen_by_a_peer(commons);
  const auto a = commons.take(), b = commons.take();
  ASSERT_TRUE(a && b);
  EXPECT_NE(*a, *b);
  std::memset(commons.data(*a), 1, Commons::kAreaBytes);
  std::memset(commons.data(*b), 2, Commons::kAreaBytes);
  EXPECT_EQ(peer.data(*a)[0], std::byte{1});
  EXPECT_EQ(peer.data(*a)[Commons::kAreaBytes - 1], std::byte{1});
  EXPECT_EQ(peer.data(*b)[0], std::byte{2});
}

TEST(Commons, UsesAnAreaAgainWhenNobodyReadsIt) {
  Commons commons;
  const uint32_t first = *commons.take();
  commons.give_back(first);
  EXPECT_EQ(*commons.take(), first);

  bool unread = false;
  commons.retire(first, [&] { return unread; });
  EXPECT_NE(*commons.take(), first);
  unread = true;
  EXPECT_EQ(*commons.take(), first);
}

TEST(Commons, ComesToAnEnd) {
  Commons commons;
  for (uint32_t i = 0; i < Commons::kAreas; ++i) ASSERT_EQ(commons.take(), i);
  EXPECT_EQ(commons.take(), std::nullopt);
  commons.give_back(7);
  EXPECT_EQ(commons.take(), 7u);
}

TEST(Commons, RefusesMemoryThatCouldShrink) {
  Fd memory = make_shared_memory();
  ASSERT_EQ(::ftruncate(memory.get(), Commons::kAreaBytes * Commons::kAreas), 0);
  EXPECT_THROW(PeerCommons(std::move(memory)), Exception);
}

TEST(CommonsDeathTest, APeerCannotWrite) {
  Commons commons;
  const PeerCommons peer = seen_by_a_peer(commons);
  EXPECT_DEATH(*const_cast<std::byte*>(peer.data(0)) = std::byte{1}, "");
}

}  // namespace
}  // namespace hccl_like
