#include "transport/shm/handshake.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "transport/shm/fd_message.h"
#include "transport/testing/descriptors.h"
#include "transport/testing/shm_pair.h"

namespace hccl_like {
namespace {

class ShmHandshakeTest : public testing::Test {
 protected:
  using Side = ShmHandshake::Side;
  ShmHandshakeTest() : sockets(make_socket_pair()) {}

  void send(std::string_view text, std::vector<int> fds) {
    ASSERT_EQ(send_with_fds(sockets[0].get(), std::as_bytes(std::span(text)), fds),
              FdMessageResult::kDone);
  }
  static std::string offer(uint64_t ring_bytes) {
    std::string text = "hcclshm3";
    text.append(reinterpret_cast<const char*>(&ring_bytes), sizeof ring_bytes);
    return text;
  }
  // The acceptor's reason to refuse the sent bytes.
  std::string refusal() {
    ShmHandshake acceptor(std::move(sockets[1]), Side::kAcceptor, 0, poller);
    EXPECT_TRUE(acceptor.step());
    EXPECT_EQ(acceptor.take(), nullptr);
    return acceptor.cause();
  }

  std::array<Fd, 2> sockets;
  Poller poller;
};

TEST_F(ShmHandshakeTest, MakesAWireAndKeepsFewDescriptors) {
  const size_t before = open_descriptors();
  {
    WirePair pair = make_shm_pair(1 << 16);
    ASSERT_NE(pair.ends[0], nullptr);
    // Per end: epoll, doorbell, the peer's doorbell, socket, the peer's process.
    EXPECT_EQ(open_descriptors(), before + 10);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ShmHandshakeTest, FailsWhenThePeerCloses) {
  sockets[0].reset();
  EXPECT_EQ(refusal(), "the peer closed the connection while shared memory was set up");
}

TEST_F(ShmHandshakeTest, TheConnectorFailsWhenThePeerCloses) {
  ShmHandshake connector(std::move(sockets[0]), Side::kConnector, 1 << 16, poller);
  EXPECT_FALSE(connector.step());
  sockets[1].reset();
  EXPECT_TRUE(connector.step());
  EXPECT_EQ(connector.take(), nullptr);
  EXPECT_FALSE(connector.cause().empty());
}

TEST_F(ShmHandshakeTest, BothEndsFailWhenTheMemoryIsOfAnUnexpectedKind) {
  const Fd doorbell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  send(offer(1 << 16), {null.get(), doorbell.get()});
  EXPECT_EQ(refusal(), "the peer offered shared memory of an unexpected kind");
  std::array<std::byte, 16> reply;
  std::vector<Fd> fds;
  EXPECT_EQ(receive_with_fds(sockets[0].get(), reply, fds), FdMessageResult::kDone);
  EXPECT_NE(reply[8], std::byte{0}) << "the connector is told";
}

TEST_F(ShmHandshakeTest, RefusesStrangeOffers) {
  const size_t before = open_descriptors();
  const Fd doorbell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const std::string right = offer(1 << 16);
  const std::string known =
      "the peer offered shared memory in a way that this version does not know";
  const int fd = doorbell.get();
  const auto after = [&](std::string_view text, std::initializer_list<int> fds) {
    sockets = make_socket_pair();
    send(text, fds);
    return refusal();
  };
  EXPECT_EQ(after("hcclshm9" + right.substr(8), {fd, fd}), known);
  EXPECT_EQ(after(right, {fd}), known);
  EXPECT_EQ(after(right, {fd, fd, fd}), "the peer shows memory of an unexpected kind");
  EXPECT_EQ(after(right, {fd, fd, fd, fd}), known);
  EXPECT_EQ(after(right, {}), known);
  EXPECT_NE(after(right.substr(0, 9), {fd, fd}), "");
  const Fd blocking(::eventfd(0, EFD_CLOEXEC));
  EXPECT_EQ(after(right, {fd, blocking.get()}), known) << "a doorbell must not block its ringer";
  sockets = make_socket_pair();
  EXPECT_EQ(open_descriptors(), before + 2) << "whatever came along was closed";
}

TEST_F(ShmHandshakeTest, NeedsASocket) {
  Fd pipe_like(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  ShmHandshake handshake(std::move(pipe_like), Side::kAcceptor, 0, poller);
  EXPECT_TRUE(handshake.step());
  EXPECT_NE(handshake.cause().find("whose"), std::string::npos);
}

}  // namespace
}  // namespace hccl_like
