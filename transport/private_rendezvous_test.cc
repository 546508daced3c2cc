// Long messages between private memory that the kernel reads: all that a link must do, and how ends give up and die.
// The first two messages of each size on a link go this way.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/mapping.h"
#include "core/pace.h"
#include "core/testing/kernel_reads.h"
#include "transport/link_contract.h"
#include "transport/link_endings_contract.h"
#include "transport/process_place.h"
#include "transport/rendezvous_slot.h"
#include "transport/shm/shm_pair.h"

namespace hccl_like {
namespace {

struct PrivateWires {
  static constexpr bool kThreads = true;
  static WirePair make() {
    static const Commons commons("the one process of both ends");
    return make_shm_pair(64 << 10, &commons);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Private, LinkContract, PrivateWires);
INSTANTIATE_TYPED_TEST_SUITE_P(Private, LinkEndings, PrivateWires);

class PrivateRendezvous : public LinkPair<PrivateWires> {
 protected:
  static constexpr size_t kBytes = (1 << 20) + 5;
  void SetUp() override {
    if (!kernel_reads()) GTEST_SKIP() << "the system does not let processes read each other";
  }
  static void exhaust(Link& link) {
    while (link.progress()) {
    }
  }
  // Until the receiver has read a part: true if that came to be.
  bool begin(const Bytes& into) {
    for (int i = 0; i < 100 && into.front() == std::byte{0xee}; ++i) b().progress();
    return into.front() != std::byte{0xee};
  }
};

TEST_F(PrivateRendezvous, TheReceiverReadsAllOfItAlone) {
  auto data = stream_bytes(1, kBytes);
  Bytes into = fresh(kBytes);
  const Recv& received = recv(b(), tag(1), into.data(), kBytes);
  const Send& sent = send(a(), tag(1), data.data(), kBytes);
  // The wish and the announcement; the ring is shorter than the message.
  b().progress();
  a().progress();
  exhaust(b());
  EXPECT_TRUE(received.done);
  EXPECT_TRUE(into == data);
  EXPECT_FALSE(sent.done) << "inside progress() only";
  EXPECT_FALSE(a().prepare_sleep()) << "it can be done at once";
  a().end_sleep();
  a().progress();
  EXPECT_TRUE(sent.done);
}

TEST_F(PrivateRendezvous, BothWaysAreTakenAndGiveTheSame) {
  for (uint32_t number = 0; number < 40; ++number) {
    const size_t bytes = Pace::kLeast + number % 3;
    auto data = stream_bytes(number, bytes);
    Bytes into = fresh(bytes);
    number % 2 == 0 ? void(send(a(), tag(number), data.data(), bytes))
                    : void(recv(b(), tag(number), into.data(), bytes));
    for (int i = 0; i < 20; ++i) step();
    number % 2 == 0 ? void(recv(b(), tag(number), into.data(), bytes))
                    : void(send(a(), tag(number), data.data(), bytes));
    run_until_done();
    ASSERT_TRUE(into == data) << number;
  }
}

TEST_F(PrivateRendezvous, WhatTheKernelDoesNotReadGoesThroughTheWire) {
  constexpr size_t kReadable = 512 << 10, kAll = 1 << 20;
  Mapping memory = Mapping::map(-1, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  const auto data = stream_bytes(3, kAll);
  std::copy(data.begin(), data.end(), memory.data());
  Bytes into = fresh(kAll);
  ASSERT_EQ(::mprotect(memory.data() + kReadable, kAll - kReadable, PROT_NONE), 0);
  const Recv& received = recv(b(), tag(1), into.data(), kAll);
  send(a(), tag(1), memory.data(), kAll);
  b().progress();
  a().progress();
  exhaust(b());
  EXPECT_TRUE(std::equal(into.begin(), into.begin() + kReadable, data.begin())) << "up to there";
  EXPECT_EQ(into[kReadable], std::byte{0xee});
  EXPECT_FALSE(received.done);
  ASSERT_EQ(::mprotect(memory.data() + kReadable, kAll - kReadable, PROT_READ), 0);
  std::fill(into.begin(), into.end(), std::byte{0xee});
  run_until_done();
  EXPECT_TRUE(into == data);
  // From here on nothing is tried.
  std::fill(into.begin(), into.end(), std::byte{0xee});
  recv(b(), tag(2), into.data(), kAll);
  send(a(), tag(2), memory.data(), kAll);
  run_until_done();
  EXPECT_TRUE(into == data);
}

TEST_F(PrivateRendezvous, MemoryThatASenderGaveUpIsNotReadAnyMore) {
  for (int parts = 0; parts < 8; ++parts) {
    connect({.eager_bytes = kEager}, {.eager_bytes = kEager});
    auto data = stream_bytes(1, kBytes);
    Bytes into = fresh(kBytes);
    const Recv& received = recv(b(), tag(1), into.data(), kBytes);
    send(a(), tag(1), data.data(), kBytes);
    b().progress();
    a().progress();
    for (int i = 0; i < parts; ++i) b().progress();
    a().cancel(kCommunicator);
    std::fill(data.begin(), data.end(), std::byte{0x55});
    exhaust(b());
    EXPECT_FALSE(received.done) << parts;
    const auto right = stream_bytes(1, kBytes);
    for (size_t i = 0; i < kBytes; ++i)
      ASSERT_TRUE(into[i] == right[i] || into[i] == std::byte{0xee}) << i << " after " << parts;
    b().cancel(kCommunicator);
    pending = 0;
  }
}

TEST_F(PrivateRendezvous, AReceiverThatGaveUpLeavesItsMemoryAlone) {
  auto data = stream_bytes(1, kBytes);
  Bytes into = fresh(kBytes);
  recv(b(), tag(1), into.data(), kBytes);
  const Send& sent = send(a(), tag(1), data.data(), kBytes);
  b().progress();
  a().progress();
  ASSERT_TRUE(begin(into));
  b().cancel(kCommunicator);
  std::fill(into.begin(), into.end(), std::byte{0x55});
  settle();
  EXPECT_EQ(std::count(into.begin(), into.end(), std::byte{0x55}), static_cast<ptrdiff_t>(kBytes));
  EXPECT_FALSE(sent.done);
  a().cancel(kCommunicator);
}

TEST(Claims, ABlockThatIsPutBackIsTakenByEither) {
  RendezvousSlot slot{};
  Claims receiver(slot, End::kReceiver), sender(slot, End::kSender);
  EXPECT_EQ(receiver.take(2), 0u);
  EXPECT_EQ(receiver.take(2), 1u);
  EXPECT_FALSE(sender.may_take(2));
  receiver.put_back();
  EXPECT_TRUE(sender.other_works()) << "at the first one";
  EXPECT_EQ(sender.take(2), 0u);
  sender.count();
  receiver.count();
  EXPECT_TRUE(sender.complete(2));
  EXPECT_FALSE(sender.other_works());
}

TEST(ProcessPlace, IsToldFromAHandle) {
  EXPECT_EQ(address_in_process(process_place(0x7f12'3456'7890)), 0x7f12'3456'7890u);
  ExportedRange range = process_place(1);
  range.handle.bytes[15] ^= 1;
  EXPECT_EQ(address_in_process(range), std::nullopt);
  EXPECT_EQ(address_in_process(ExportedRange{}), std::nullopt);
}

// In the middle of a message the sender dies, or may not be read any more by a receiver that changes its user.
class PrivateRendezvousFork : public testing::Test {
 protected:
  static constexpr size_t kBytes = 8 << 20;
  void SetUp() override {
    if (!kernel_reads()) GTEST_SKIP() << "the system does not let processes read each other";
  }
  template <class OneEnd>
  static void post(Link& link, OneEnd& message, Pieces& pieces, std::vector<std::byte>& own,
                   uint32_t& pending) {
    pieces.add(own.data(), own.size());
    message.bytes = own.size();
    message.pending = &pending;
    message.tag = {.communicator = 7, .sequence = 1};
    link.post(message);
  }
};

TEST_F(PrivateRendezvousFork, ASenderThatDiesInTheMiddleIsAFailureAndNeverAMessage) {
  auto sockets = make_socket_pair();
  const pid_t child = ::fork();
  if (child == 0) {
    sockets[0].reset();
    Poller poller;
    const Commons commons("the sender");
    Link link(make_shm_end(std::move(sockets[1]), false, 64 << 10, poller, &commons), {});
    auto data = stream_bytes(5, kBytes);
    uint32_t pending = 1;
    Send message;
    post(link, message, message.from, data, pending);
    while (link.failure() == nullptr) {
      poller.poll();
      link.progress();
    }
    ::_exit(0);
  }
  sockets[1].reset();
  Poller poller;
  const Commons commons("the receiver");
  Link link(make_shm_end(std::move(sockets[0]), true, 64 << 10, poller, &commons), {});
  std::vector<std::byte> into(kBytes, std::byte{0xee});
  uint32_t pending = 1;
  Recv message;
  post(link, message, message.into, into, pending);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (into.front() == std::byte{0xee} && !deadline.expired()) link.progress();
  EXPECT_EQ(into.front(), stream_byte(5));
  EXPECT_EQ(into.back(), std::byte{0xee}) << "not all at once";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (link.failure() == nullptr && !deadline.expired()) {
    link.progress();
    poller.poll();
  }
  ASSERT_NE(link.failure(), nullptr);
  EXPECT_EQ(link.failure()->code, ErrorCode::kPeerLost);
  EXPECT_EQ(pending, 1u) << "what was not sent is never done";
  EXPECT_EQ(into.back(), std::byte{0xee});
  const auto begin = std::chrono::steady_clock::now();
  link.cancel(7);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
}

TEST_F(PrivateRendezvousFork, AReceiverThatMayNotReadAnyMoreGetsItThroughTheWire) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  auto sockets = make_socket_pair();
  const pid_t child = ::fork();
  if (child == 0) {
    sockets[0].reset();
    Poller poller;
    const Commons commons("the receiver");
    Link link(make_shm_end(std::move(sockets[1]), false, 64 << 10, poller, &commons), {});
    std::vector<std::byte> into(kBytes);
    uint32_t pending = 1;
    Recv message;
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    post(link, message, message.into, into, pending);
    while (pending > 0 && link.failure() == nullptr) {
      poller.poll();
      link.progress();
    }
    ::_exit(pending == 0 && into == stream_bytes(5, kBytes) ? 0 : 1);
  }
  sockets[1].reset();
  Poller poller;
  const Commons commons("the sender");
  Link link(make_shm_end(std::move(sockets[0]), true, 64 << 10, poller, &commons), {});
  auto data = stream_bytes(5, kBytes);
  uint32_t pending = 1;
  Send message;
  post(link, message, message.from, data, pending);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (pending > 0 && link.failure() == nullptr && !deadline.expired()) {
    poller.poll();
    link.progress();
  }
  EXPECT_EQ(pending, 0u);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hccl_like
