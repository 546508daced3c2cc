#include "transport/early_peers.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <string>

namespace hccl_like {
namespace {

Accepted peer(const std::string& id, const std::string& from = {}) {
  Accepted accepted;
  accepted.socket = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  accepted.peer_id = id;
  accepted.from = from;
  return accepted;
}

TEST(EarlyPeers, AreHeldUntilTheyAreTaken) {
  EarlyPeers peers;
  peers.hold(peer("a", "first"));
  peers.hold(peer("b"));
  peers.hold(peer("a", "second"));
  EXPECT_EQ(peers.size(), 2u);
  EXPECT_FALSE(peers.take("c"));
  const auto taken = peers.take("a");
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->from, "second");
  EXPECT_TRUE(taken->socket.valid());
  EXPECT_FALSE(peers.take("a"));
  EXPECT_EQ(peers.size(), 1u);
}

TEST(EarlyPeers, AreNoMoreThanThereIsRoomForAndGoAfterAWhile) {
  EarlyPeers peers;
  const auto start = EarlyPeers::Clock::now();
  for (size_t i = 0; i < EarlyPeers::kMost; ++i) {
    ASSERT_TRUE(peers.has_room(start)) << i;
    peers.hold(peer(std::to_string(i)), start);
  }
  EXPECT_FALSE(peers.has_room(start + EarlyPeers::kHeldAtMost));
  EXPECT_TRUE(peers.has_room(start + EarlyPeers::kHeldAtMost + std::chrono::milliseconds(1)));
  EXPECT_EQ(peers.size(), 0u);
}

}  // namespace
}  // namespace hccl_like
