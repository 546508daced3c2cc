// New connections in the place of broken ones: no byte is lost and none comes twice.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "transport/tcp/tcp_wire.h"
#include "transport/tcp/unconfirmed.h"
#include "transport/testing/connected_sockets.h"
#include "transport/testing/wire_contract.h"

namespace hccl_like {
namespace {

std::string text_of(const Unconfirmed& kept, uint64_t position) {
  std::string text;
  while (position < kept.end()) {
    const ConstRegion part = kept.from(position);
    text.append(reinterpret_cast<const char*>(part.data), part.bytes);
    position += part.bytes;
  }
  return text;
}

ConstRegion region(const std::string& text, bool stays) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size(), stays};
}

TEST(Unconfirmed, KeepsWhatWasSentUntilItIsConfirmed) {
  Unconfirmed kept;
  EXPECT_EQ(kept.room(), 0u);
  kept.keep(region("abcdef", false));
  EXPECT_EQ(text_of(kept, 0), "abcdef");
  EXPECT_EQ(text_of(kept, 4), "ef");
  kept.confirm(3);
  kept.confirm(1);
  EXPECT_EQ(kept.begin(), 3u);
  EXPECT_EQ(text_of(kept, 3), "def");
  EXPECT_EQ(text_of(kept, 6), "");
}

TEST(Unconfirmed, CopiesWhatStayedOnlyWhenItIsLetGo) {
  Unconfirmed kept;
  std::string memory = "stays here";
  kept.keep(region("before ", false));
  kept.keep(region(memory, true));
  kept.keep(region(" after", false));
  EXPECT_EQ(text_of(kept, 0), "before stays here after");
  EXPECT_TRUE(kept.holds(8));
  EXPECT_FALSE(kept.holds(7)) << "the first byte by address is at 7";
  memory[0] = 'S';
  EXPECT_EQ(text_of(kept, 5), "e Stays here after") << "nothing was copied";
  kept.confirm(13);
  kept.let_go(7);
  EXPECT_TRUE(kept.holds(8));
  kept.let_go(8);
  EXPECT_FALSE(kept.holds(UINT64_MAX));
  memory.assign(memory.size(), '-');
  EXPECT_EQ(text_of(kept, 13), "here after");
}

TEST(Unconfirmed, GrowsWithoutLosingTheOrderOfWhatWrapsAround) {
  Unconfirmed kept;
  std::string all;
  std::deque<std::string> staying;
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    std::string more(1 + random() % 5'000, 0);
    for (char& one : more) one = static_cast<char>(random());
    all += more;
    if (random() % 2 == 0) {
      kept.keep(region(more, false));
    } else {
      staying.push_back(std::move(more));
      kept.keep(region(staying.back(), true));
    }
    if (i % 3 == 0) kept.confirm(kept.begin() + random() % (kept.end() - kept.begin()));
    if (i % 7 == 0) {
      kept.let_go(UINT64_MAX);
      for (std::string& one : staying) one.assign(one.size(), '-');
      staying.clear();
    }
    ASSERT_EQ(text_of(kept, kept.begin()), all.substr(kept.begin())) << i;
  }
  EXPECT_EQ(kept.end(), all.size());
}

// Two ends whose connection a test replaces. End 0 makes connections.
struct Resumable {
  explicit Resumable(TcpOptions with = {}) {
    auto sockets = connected_sockets(AF_INET);
    for (size_t i = 0; i < 2; ++i) {
      TcpOptions options = with;
      options.broke = broke[i];
      ends[i] = std::make_unique<TcpWire>(std::move(sockets[i]), pollers[i], options, "a test:1");
    }
  }
  void replace(bool connector_hears = true, bool acceptor_hears = true) {
    auto sockets = connected_sockets(AF_INET);
    ends[1]->stop("a test");
    if (acceptor_hears) ends[1]->resume(std::move(sockets[1]), WireSide::kAcceptor, "a test:2");
    if (connector_hears) ends[0]->resume(std::move(sockets[0]), WireSide::kConnector, "a test:2");
  }
  size_t write(size_t end, size_t bytes) {
    std::vector<std::byte> stream = stream_bytes(written[end], bytes);
    const ConstRegion region{stream.data(), stream.size(), bytes % 2 == 0};
    const size_t now = ends[end]->write({&region, 1});
    written[end] += now;
    if (region.stays) staying[end].push_back(std::move(stream));
    return now;
  }
  void let_go(size_t end) {
    ends[end]->let_go(UINT64_MAX, /*copy=*/true);
    staying[end].clear();
  }
  // What the other end has written; false if a byte is wrong.
  bool read(size_t end, size_t bytes) {
    std::vector<std::byte> got(bytes);
    got.resize(ends[end]->read(got));
    const auto expected = stream_bytes(taken[end], got.size());
    taken[end] += got.size();
    return got == expected;
  }
  void poll() {
    for (size_t i = 0; i < 2; ++i) {
      pollers[i].poll();
      ends[i]->flush();
    }
  }
  bool open() const {
    return std::ranges::none_of(ends,
                                [](const auto& one) { return one->broken() || one->resuming(); });
  }
  void until(const std::function<bool()>& done) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!done()) {
      poll();
      ASSERT_FALSE(deadline.expired());
    }
  }
  // Reads all that was written; false if a byte is wrong.
  bool finish() {
    poll();
    if (!open()) replace();
    bool right = true;
    until([&] {
      right = right && read(0, 100'000) && read(1, 100'000);
      return !right || (taken[0] == written[1] && taken[1] == written[0] && open());
    });
    return right && !testing::Test::HasFatalFailure();
  }
  std::array<Poller, 2> pollers;
  std::array<std::shared_ptr<bool>, 2> broke{std::make_shared<bool>(false),
                                             std::make_shared<bool>(false)};
  std::array<std::unique_ptr<TcpWire>, 2> ends;
  std::array<uint64_t, 2> written{}, taken{};
  std::array<std::vector<std::vector<std::byte>>, 2> staying;  // until let_go()
};

TEST(Resume, GoesOnWithUnreadBytesOfBothConnections) {
  Resumable job;
  EXPECT_EQ(job.write(0, 1'000), 1'000u);
  EXPECT_EQ(job.write(1, 2'000), 2'000u);
  job.ends[0]->stop("the test's cause");
  EXPECT_TRUE(job.ends[0]->broken());
  EXPECT_TRUE(*job.broke[0]);
  EXPECT_EQ(job.ends[0]->cause(), "the test's cause");
  EXPECT_EQ(job.ends[0]->failure(), nullptr);
  EXPECT_EQ(job.write(0, 1), 0u) << "nothing goes over a broken connection";
  EXPECT_FALSE(job.ends[0]->flush());
  EXPECT_TRUE(job.ends[0]->prepare_sleep({}));
  job.ends[0]->end_sleep();
  job.replace();
  EXPECT_EQ(job.write(0, 1), 0u) << "the peer's position is not known yet";
  job.until([&] { return job.open(); });
  EXPECT_EQ(job.write(0, 500), 500u);
  EXPECT_EQ(job.write(1, 600), 600u);
  job.until([&] {
    EXPECT_TRUE(job.read(0, 10'000) && job.read(1, 10'000));
    return job.taken[1] == 1'500 && job.taken[0] == 2'600;
  });
  for (const auto& end : job.ends) {
    EXPECT_EQ(end->resumed(), 1u);
    EXPECT_EQ(end->resent(), 0u) << "the peer's kernel had all";
  }
}

TEST(Resume, SendsAgainWhatThePeersKernelNeverHad) {
  Resumable job({.socket_buffer_bytes = 1, .receive_buffer_bytes = 8192});
  while (job.write(0, 10'000) != 0) {
  }
  const uint64_t written = job.written[0];
  job.replace();
  job.until([&] {
    EXPECT_TRUE(job.read(1, 50'000));
    return job.taken[1] == written && job.open();
  });
  EXPECT_GT(job.ends[0]->resent(), 0u);
  EXPECT_LT(job.ends[0]->resent(), written);
  EXPECT_FALSE(job.ends[0]->owes());
}

// The connection to a process that lives may break at any moment, that of a new one included.
TEST(Resume, LosesAndRepeatsNothingWhereverItBreaks) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    Resumable job(seed % 2 == 0 ? TcpOptions{.socket_buffer_bytes = 1, .receive_buffer_bytes = 8192}
                                : TcpOptions{});
    uint64_t replaced = 0;
    for (int i = 0; i < 400; ++i) {
      const size_t end = random() % 2;
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          job.write(end, 1 + random() % 100'000);
          break;
        case 3:
        case 4:
          ASSERT_TRUE(job.read(end, 1 + random() % 100'000)) << seed;
          break;
        case 5:
          job.ends[end]->peek(1 + random() % 4'000);
          break;
        case 6:
          job.poll();
          if (random() % 2 == 0) job.let_go(end);
          break;
        default:
          if (random() % 4 == 0) {
            job.replace(random() % 4 != 0, random() % 4 != 0);
            ++replaced;
          } else if (random() % 4 == 0) {
            job.ends[end]->stop("a test");
          }
      }
      for (const auto& one : job.ends) ASSERT_EQ(one->failure(), nullptr) << seed;
    }
    ASSERT_TRUE(job.finish()) << seed;
    ASSERT_GT(replaced, 0u) << seed;
  }
}

// All sequences of so many steps, with socket buffers that one write overfills.
TEST(Resume, LosesAndRepeatsNothingInAnyOrderOfSteps) {
  using Step = std::function<void(Resumable&)>;
  const std::vector<Step> steps{
      [](Resumable& job) { job.write(0, 60'000); },
      [](Resumable& job) { job.write(1, 60'001); },
      [](Resumable& job) { EXPECT_TRUE(job.read(0, 9'000)); },
      [](Resumable& job) { EXPECT_TRUE(job.read(1, 100'000)); },
      [](Resumable& job) { job.poll(); },
      [](Resumable& job) { job.replace(); },
      [](Resumable& job) { job.replace(true, false); },
      [](Resumable& job) { job.replace(false, true); },
  };
  const char* const asked = std::getenv("HCCL_LIKE_RESUME_STEPS");
  const int length = asked == nullptr ? 3 : std::atoi(asked);
  size_t count = 1;
  for (int i = 0; i < length; ++i) count *= steps.size();
  for (size_t sequence = 0; sequence < count; ++sequence) {
    Resumable job({.socket_buffer_bytes = 1, .receive_buffer_bytes = 8192});
    for (size_t rest = sequence, i = 0; i < static_cast<size_t>(length); ++i) {
      steps[rest % steps.size()](job);
      rest /= steps.size();
      for (const auto& one : job.ends) ASSERT_EQ(one->failure(), nullptr) << sequence;
    }
    ASSERT_TRUE(job.finish()) << sequence;
  }
}

TEST(Resume, ReadsTheOldConnectionToItsEndBeforeTheNewOne) {
  Resumable job;
  EXPECT_EQ(job.write(0, 100), 100u);
  auto sockets = connected_sockets(AF_INET);
  job.ends[1]->resume(std::move(sockets[1]), WireSide::kAcceptor, "a test:2");
  std::vector<std::byte> sent(sizeof(uint64_t));  // the position: nothing has been received
  const auto more = stream_bytes(100, 50);
  sent.insert(sent.end(), more.begin(), more.end());
  ASSERT_EQ(::send(sockets[0].get(), sent.data(), sent.size(), 0), ssize_t{58});
  while (job.taken[1] < 150) ASSERT_TRUE(job.read(1, 150));
  EXPECT_EQ(job.ends[1]->resumed(), 1u);
}

TEST(Resume, EndsWhereAProxyHasLostWhatItConfirmed) {
  Resumable job;
  EXPECT_EQ(job.write(0, 1'000), 1'000u);
  auto sockets = connected_sockets(AF_INET);
  job.ends[0]->resume(std::move(sockets[0]), WireSide::kConnector, "a test:2");
  const uint64_t beyond = 1'001;
  ASSERT_EQ(::send(sockets[1].get(), &beyond, sizeof beyond, 0), ssize_t{sizeof beyond});
  job.until([&] { return job.ends[0]->failure() != nullptr; });
  EXPECT_EQ(job.ends[0]->failure()->message,
            "the tcp connection to a test:2 is gone: the new connection cannot go on at byte 1001, "
            "because this end has bytes 0 to 1000; does a proxy stand between the ends?");
}

TEST(Resume, IsGivenUpByItsOwner) {
  Resumable job;
  job.ends[0]->stop("a test");
  job.ends[0]->give_up({ErrorCode::kPeerLost, "nobody there"});
  job.ends[0]->give_up({ErrorCode::kPeerLost, "too late"});
  EXPECT_EQ(job.ends[0]->failure()->message, "nobody there");
  auto sockets = connected_sockets(AF_INET);
  job.ends[0]->resume(std::move(sockets[0]), WireSide::kConnector, "a test:2");
  EXPECT_EQ(job.write(0, 1), 0u);
  EXPECT_EQ(job.pollers[0].sockets(), 0u);
}

TEST(Resume, ReadsWhatHadArrivedWhenItWasGivenUp) {
  Resumable job;
  EXPECT_EQ(job.write(0, 100), 100u);
  job.until([&] { return job.ends[0]->flush(); });
  job.ends[1]->stop("a test");
  job.ends[1]->give_up({ErrorCode::kPeerLost, "it has left"});
  EXPECT_EQ(job.ends[1]->peek(60).size(), 100u);
  EXPECT_EQ(job.ends[1]->failure(), nullptr);
  EXPECT_FALSE(job.ends[1]->prepare_sleep({.bytes = false}));
  ASSERT_TRUE(job.read(1, 100));
  EXPECT_EQ(job.taken[1], 100u);
  job.ends[1]->peek();
  ASSERT_NE(job.ends[1]->failure(), nullptr);
  EXPECT_EQ(job.ends[1]->failure()->message, "it has left");
}

TEST(Resume, IsNotForAPeerThatCloses) {
  Resumable job;
  job.ends[1].reset();
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (job.ends[0]->failure() == nullptr && !deadline.expired()) {
    job.pollers[0].poll();
    job.ends[0]->peek();
  }
  ASSERT_NE(job.ends[0]->failure(), nullptr);
  EXPECT_FALSE(*job.broke[0]);
}

}  // namespace
}  // namespace hccl_like
