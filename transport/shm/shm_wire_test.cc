#include "transport/shm/shm_wire.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "transport/testing/link_contract.h"
#include "transport/testing/link_endings_contract.h"
#include "transport/testing/shm_pair.h"

namespace hccl_like {
namespace {

template <size_t kRing>
struct ShmWires {
  static constexpr bool kThreads = true;
  static WirePair make() { return make_shm_pair(kRing); }
};
using Smallest = ShmWires<4096>;
using Small = ShmWires<16 << 10>;
using Usual = ShmWires<256 << 10>;
INSTANTIATE_TYPED_TEST_SUITE_P(ShmSmall, WireContract, Small);
INSTANTIATE_TYPED_TEST_SUITE_P(ShmSmallest, LinkContract, Smallest);
INSTANTIATE_TYPED_TEST_SUITE_P(ShmSmallest, LinkEndings, Smallest);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, WireContract, Usual);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, LinkContract, Usual);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, LinkEndings, Usual);

class LongMessages : public LinkPair<Usual> {};
TEST_F(LongMessages, GoPastTheCachesToWhereTheyBelong) {
  connect({}, {.least_past_caches = 2000});
  for (const uint32_t bytes : {1999u, 2000u, 65'537u, 1'048'579u}) {
    auto data = stream_bytes(bytes, bytes), got = fresh(bytes + 4), expected = got;
    std::ranges::copy(data, expected.begin() + 3);
    recv(b(), tag(bytes), got.data() + 3, bytes);
    send(a(), tag(bytes), data.data(), bytes);
    run_until_done();
    EXPECT_TRUE(got == expected) << bytes << " bytes";
  }
}

size_t shared_memory_files() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/dev/shm"), {}));
}

// A child that runs `body` on one end of a wire. Its exit status is 0 if body says true.
class Child {
 public:
  template <class Body>
  explicit Child(size_t ring_bytes, Body body) {
    auto sockets = make_socket_pair();
    pid_ = ::fork();
    if (pid_ == 0) {
      sockets[0].reset();
      Poller own;
      auto end = make_shm_end(std::move(sockets[1]), false, ring_bytes, own);
      const bool well = end != nullptr && body(std::move(end), own);
      ::_exit(well ? 0 : 1);
    }
    sockets[1].reset();
    wire = make_shm_end(std::move(sockets[0]), true, ring_bytes, poller);
  }
  ~Child() {
    if (pid_ > 0) end(SIGKILL);
  }
  void end(int signal) {
    ::kill(pid_, signal);
    wait();
  }
  int wait() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }
  // Not reaped: a zombie is dead all the same.
  void kill_only() { ::kill(pid_, SIGKILL); }

  Poller poller;
  std::unique_ptr<Wire> wire;

 private:
  pid_t pid_ = -1;
};

void wait_for_failure(Link& link, Poller& poller) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (link.failure() == nullptr && !deadline.expired()) {
    if (link.progress()) continue;
    if (link.prepare_sleep()) poller.sleep(deadline);
    link.end_sleep();
  }
}

TEST(ShmWire, APeerThatIsKilledIsNoticedAndLeavesNothing) {
  const size_t before = shared_memory_files();
  {
    Child child(1 << 16, [](auto, Poller& own) {
      for (;;) own.sleep(Deadline::never());
      return true;
    });
    ASSERT_NE(child.wire, nullptr);
    EXPECT_EQ(shared_memory_files(), before);
    Link link(std::move(child.wire), {});
    EXPECT_EQ(link.failure(), nullptr);
    child.kill_only();
    wait_for_failure(link, child.poller);
    ASSERT_NE(link.failure(), nullptr);
    EXPECT_EQ(link.failure()->code, ErrorCode::kPeerLost);
  }
  EXPECT_EQ(shared_memory_files(), before);
}

TEST(ShmWire, APeerThatIsKilledInTheMiddleOfAStreamIsNoticed) {
  for (int round = 0; round < 20; ++round) {
    Child child(4096, [](auto wire, Poller&) {
      const std::vector<std::byte> data = stream_bytes(0, 1000);
      const ConstRegion region{data.data(), data.size()};
      for (;;)
        if (wire->write({&region, 1}) == 0) std::this_thread::yield();
      return true;
    });
    ASSERT_NE(child.wire, nullptr);
    std::vector<std::byte> buffer(777);
    uint64_t read = 0;
    while (read < 10'000 * static_cast<uint64_t>(round)) {
      const size_t part = child.wire->read(buffer);
      if (part == 0) std::this_thread::yield();
      read += part;
    }
    child.kill_only();
    for (int i = 0; i < 10'000'000 && child.wire->failure() == nullptr; ++i) {
      if (child.wire->read(buffer) == 0)
        child.poller.sleep(Deadline::after(std::chrono::milliseconds(1)));
    }
    ASSERT_NE(child.wire->failure(), nullptr) << "round " << round;
  }
}

TEST(ShmWire, APeerThatDiesInTheMiddleOfAHeaderIsNoticed) {
  WirePair pair = make_shm_pair(4096);
  const std::vector<std::byte> data = stream_bytes(0, 20);
  const ConstRegion region{data.data(), data.size()};
  ASSERT_EQ(pair.ends[0]->write({&region, 1}), 20u);
  Link link(std::move(pair.ends[1]), {});
  link.progress();
  pair.ends[0].reset();
  wait_for_failure(link, *pair.pollers[1]);
  ASSERT_NE(link.failure(), nullptr);
}

// The socket alone would not tell: a forked grandchild holds the peer's copy of it.
TEST(ShmWire, APeerThatIsKilledIsNoticedAlthoughItsChildLivesOn) {
  int to_end[2];
  ASSERT_EQ(::pipe(to_end), 0);
  auto sockets = make_socket_pair();
  // The peer must be the process that the socket's credentials name, so it is the child that makes
  // the pair's other half its own: over a listening socket.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)), 0);
  socklen_t length = sizeof address;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const pid_t peer = ::fork();
  if (peer == 0) {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) ::_exit(1);
    Poller own;
    auto wire = make_shm_end(std::move(socket), true, 4096, own);
    if (::fork() == 0) {
      ::close(to_end[1]);
      char byte;
      (void)!::read(to_end[0], &byte, 1);
      ::_exit(0);
    }
    const ConstRegion region{reinterpret_cast<const std::byte*>("x"), 1};
    wire->write({&region, 1});
    for (;;) own.sleep(Deadline::never());
  }
  Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  Poller poller;
  auto wire = make_shm_end(std::move(socket), false, 4096, poller);
  ASSERT_NE(wire, nullptr);
  std::byte byte;
  while (wire->read({&byte, 1}) == 0) {
  }
  ::kill(peer, SIGKILL);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (wire->failure() == nullptr && !deadline.expired()) poller.sleep(deadline);
  EXPECT_NE(wire->failure(), nullptr);
  ::close(to_end[0]);
  ::close(to_end[1]);
  ::waitpid(peer, nullptr, 0);
}

// Sums what it gets and answers, sleeping whenever there is nothing to do.
TEST(ShmWire, TwoProcessesExchangeMessagesAndSleep) {
  constexpr uint32_t kRounds = 5000;
  const auto play = [](std::unique_ptr<Wire> wire, Poller& poller, uint32_t self) {
    Link link(std::move(wire), {.eager_bytes = 2000});
    int slept_long = 0;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const size_t bytes = round % 50 == 0 ? 100'000 + round : round % 3000;
      const auto data = stream_bytes(2 * round + self, bytes);
      std::vector<std::byte> got(bytes);
      uint32_t left = 2;
      Send send;
      send.tag = {.communicator = 1, .sequence = round};
      send.bytes = bytes;
      send.pending = &left;
      send.from.add(const_cast<std::byte*>(data.data()), bytes);
      Recv recv;
      recv.tag = send.tag;
      recv.bytes = bytes;
      recv.pending = &left;
      recv.into.add(got.data(), bytes);
      link.post(recv);
      link.post(send);
      while (left > 0) {
        if (link.progress()) continue;
        if (link.failure() != nullptr) return false;
        if (link.prepare_sleep()) {
          const auto begin = Deadline::Clock::now();
          poller.sleep(Deadline::never());
          slept_long += Deadline::Clock::now() - begin > std::chrono::milliseconds(95);
        }
        link.end_sleep();
      }
      if (got != stream_bytes(2 * round + 1 - self, bytes)) return false;
    }
    return slept_long <= 1;
  };
  Child child(16 << 10, [&](auto wire, Poller& own) { return play(std::move(wire), own, 1); });
  ASSERT_NE(child.wire, nullptr);
  EXPECT_TRUE(play(std::move(child.wire), child.poller, 0));
  EXPECT_EQ(child.wait(), 0);
}

TEST(ShmWire, DamagedMemoryIsAFailure) {
  // The peer writes nonsense where its index should be.
  Poller poller;
  auto sockets = make_socket_pair();
  ShmSegment segment = ShmSegment::create(4096);
  ShmSegment peer = ShmSegment::open(Fd(::dup(segment.fd())), 4096);
  RingIndices& indices = *static_cast<RingIndices*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd(), 0));
  ShmWire wire({.side = 1,
                .socket = std::move(sockets[0]),
                .segment = std::move(segment),
                .doorbell = Fd(::dup(poller.doorbell()))},
               poller);
  EXPECT_EQ(wire.failure(), nullptr);
  indices.written.store(~uint64_t{0} / 2);
  EXPECT_EQ(wire.peek(1).size(), 0u);
  ASSERT_NE(wire.failure(), nullptr);
  EXPECT_EQ(wire.failure()->code, ErrorCode::kPeerLost);
  EXPECT_FALSE(wire.prepare_sleep({})) << "there is a failure to tell";
  wire.end_sleep();
  ::munmap(&indices, 4096);
}

}  // namespace
}  // namespace hccl_like
