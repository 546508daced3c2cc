#include "transport/mesh/early_peers.h"

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

TEST(EarlyPeers, GoAfterAWhile) {
  constexpr std::chrono::milliseconds kLater{1};
  EarlyPeers peers;
  EXPECT_TRUE(peers.next_timer().is_never());
  const auto start = EarlyPeers::Clock::now();
  peers.hold(peer("a"), start);
  peers.hold(peer("b"), start + kLater);
  EXPECT_EQ(peers.next_timer().time_point(), start + EarlyPeers::kHeldAtMost);
  peers.begin_turn(start + EarlyPeers::kHeldAtMost - kLater);
  EXPECT_EQ(peers.size(), 2u);
  peers.begin_turn(start + EarlyPeers::kHeldAtMost);
  EXPECT_EQ(peers.size(), 1u);
  EXPECT_FALSE(peers.take("a"));
  EXPECT_TRUE(peers.take("b"));
}

// All of a turn are let in before the first of them is held.
TEST(EarlyPeers, AreNoMoreThanThereIsRoomFor) {
  EarlyPeers peers;
  constexpr size_t kHeld = 3;
  for (size_t i = 0; i < kHeld; ++i) peers.hold(peer(std::to_string(i)));
  for (size_t turn = 0; turn < 2; ++turn) {
    peers.begin_turn();
    for (size_t i = kHeld; i < EarlyPeers::kMost; ++i) ASSERT_TRUE(peers.admit()) << i;
    EXPECT_FALSE(peers.admit());
  }
}

}  // namespace
}  // namespace hccl_like
