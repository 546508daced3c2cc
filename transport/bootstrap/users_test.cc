// Whom the kernel says who knocks: another user of the host is turned away, whatever he knows.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transport/bootstrap/acceptor.h"
#include "transport/bootstrap/connector.h"

namespace hccl_like {
namespace {

// Of this thread only: setresuid() would change them all.
bool become(uid_t user) { return ::syscall(SYS_setresuid, -1, user, -1) == 0; }

TEST(DoorForUsers, TurnsAwayAnotherOneWithTheKeyInHand) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const JobKey job;
  const Identity self = new_identity(job);
  Poller poller;
  Acceptor acceptor(self, poller);
  Listener listener = Listener::unix_abstract();
  const Way way = way_to_unix(listener.name());
  acceptor.listeners().add(std::move(listener));

  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(become(65534));
  const int result =
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&way.address), way.length);
  ASSERT_TRUE(become(0));
  ASSERT_EQ(result, 0);
  const std::string hello = greeting::Calling(new_identity(job), self).hello();
  ASSERT_EQ(::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(hello.size()));

  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  char byte;
  ssize_t got = -1;
  while (got < 0 && !deadline.expired()) {
    poller.poll();
    EXPECT_TRUE(acceptor.step([](const std::string&, size_t) { return true; }).empty());
    got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    if (got < 0 && errno == ECONNRESET) break;  // closed with the hello unread
  }
  EXPECT_LE(got, 0) << "it was told something";
  EXPECT_FALSE(deadline.expired());
  EXPECT_EQ(acceptor.refusals().counts()[static_cast<size_t>(Refusal::kOtherUser)], 1u);
  EXPECT_EQ(acceptor.refusals().total(), 1u);
}

}  // namespace
}  // namespace hccl_like
