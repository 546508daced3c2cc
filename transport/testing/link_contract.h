#pragma once
// Conformance tests for message transfer by a Link over any Wire. link_endings_contract.h tests
// errors. The type is as in wire_contract.h:
//
//   INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, LinkContract, TcpWires);
//   INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, LinkEndings, TcpWires);
//
// With a member kAtOnce the wires may move megabytes in one turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "transport/testing/link_pair.h"

namespace hccl_like {

// dst[i] = 3 * a[i] + b[i]: detects swapped operands and elements that are torn or used twice.
inline void combine_int32(std::byte* dst, const std::byte* a, const std::byte* b,
                          size_t elements) noexcept {
  for (size_t i = 0; i < elements; ++i) {
    uint32_t x, y;
    std::memcpy(&x, a + 4 * i, 4);
    std::memcpy(&y, b + 4 * i, 4);
    const uint32_t sum = 3 * x + y;
    std::memcpy(dst + 4 * i, &sum, 4);
  }
}

template <class Wires>
class LinkContract : public LinkPair<Wires> {};
TYPED_TEST_SUITE_P(LinkContract);

TYPED_TEST_P(LinkContract, CarriesMessagesOfEverySize) {
  uint32_t number = 0;
  for (const size_t bytes : {size_t{0}, size_t{1}, this->kEager - 1, this->kEager, this->kEager + 1,
                             size_t{65'537}, this->kLong}) {
    for (const bool early : {false, true}) {
      auto data = stream_bytes(number, bytes);
      auto got = this->fresh(bytes);
      const Tag tag = this->tag(++number);
      if (early) {
        this->send(this->a(), tag, data.data(), bytes);
        this->settle();
        size_t told = 99;
        EXPECT_TRUE(this->b().arrived(tag, &told));
        EXPECT_EQ(told, bytes);
        this->recv(this->b(), tag, got.data(), bytes);
        EXPECT_FALSE(this->b().arrived(tag, &told)) << "somebody asked for it";
      } else {
        this->recv(this->b(), tag, got.data(), bytes);
        this->settle();
        EXPECT_EQ(this->pending, 1u);
        this->send(this->a(), tag, data.data(), bytes);
      }
      this->run_until_done();
      EXPECT_TRUE(got == data) << bytes << " bytes, early " << early;
    }
  }
}

TYPED_TEST_P(LinkContract, CountsDownInsideProgressOnly) {
  auto data = stream_bytes(0, 10);
  auto got = this->fresh(10);
  this->send(this->a(), this->tag(1), data.data(), 10);
  EXPECT_EQ(this->pending, 1u);
  this->settle();
  EXPECT_EQ(this->pending, 0u);
  this->recv(this->b(), this->tag(1), got.data(), 10);
  EXPECT_EQ(this->pending, 1u);
  EXPECT_FALSE(this->b().prepare_sleep()) << "it can be done at once";
  this->b().end_sleep();
  EXPECT_TRUE(this->b().progress());
  EXPECT_EQ(this->pending, 0u);
  EXPECT_TRUE(got == data);
}

TYPED_TEST_P(LinkContract, MatchesByTagInAnyOrder) {
  constexpr uint32_t kMessages = 40;
  std::vector<std::vector<std::byte>> data, got;
  for (uint32_t i = 0; i < kMessages; ++i) {
    data.push_back(stream_bytes(100 * i, i % 3 == 0 ? 3000 + i : 100 + i));
    got.push_back(this->fresh(data[i].size()));
  }
  for (uint32_t i = 0; i < kMessages; ++i)
    this->send(this->a(), this->tag(i), data[i].data(), data[i].size());
  for (uint32_t i = kMessages; i-- > 0;) {
    this->step();
    this->recv(this->b(), this->tag(i), got[i].data(), got[i].size());
  }
  this->run_until_done();
  EXPECT_TRUE(got == data);
}

TYPED_TEST_P(LinkContract, TellsEveryPartOfATagApart) {
  const std::vector<Tag> tags{
      {.communicator = 1}, {.communicator = 2}, {.channel = 1},    {.sequence = 1},
      {.slice = 1},        {.round = 1},        {.occurrence = 1}, {}};
  std::vector<std::byte> data(tags.size()), got(tags.size(), std::byte{0xee});
  for (size_t i = 0; i < tags.size(); ++i) {
    data[i] = static_cast<std::byte>(i);
    this->send(this->a(), tags[i], &data[i], 1);
  }
  for (size_t i = tags.size(); i-- > 0;) this->recv(this->b(), tags[i], &got[i], 1);
  this->run_until_done();
  EXPECT_TRUE(got == data);
}

TYPED_TEST_P(LinkContract, ALargeMessageDoesNotHoldUpSmallOnes) {
  auto large = stream_bytes(0, 8 << 20), got_large = this->fresh(large.size());
  auto small = stream_bytes(5, 100), got_small = this->fresh(100);
  this->recv(this->b(), this->tag(1), got_large.data(), large.size());
  Send& slow = this->send(this->a(), this->tag(1), large.data(), large.size());
  this->run([&] { return this->begun(slow, got_large); });
  uint32_t others = 0;
  Recv& fast = this->recvs.emplace_back();
  fast.into.add(got_small.data(), 100);
  fast.tag = this->tag(2);
  fast.fingerprint = 1;
  fast.bytes = 100;
  fast.pending = &others;
  others = 1;
  this->b().post(fast);
  this->send(this->a(), this->tag(2), small.data(), 100);
  this->run([&] { return others == 0; });
  constexpr bool at_once = requires { TypeParam::kAtOnce; };
  EXPECT_TRUE(at_once || slow.moved < large.size());
  this->run_until_done();
  EXPECT_TRUE(got_large == large);
  EXPECT_TRUE(got_small == small);
}

TYPED_TEST_P(LinkContract, GathersAndScattersPieces) {
  std::mt19937_64 random(11);
  for (uint32_t round = 0; round < 30; ++round) {
    auto data = stream_bytes(round, 50'000), got = this->fresh(50'000);
    std::vector<std::byte> expected = got;
    Send& send = this->sends.emplace_back();
    Recv& recv = this->recvs.emplace_back();
    // Pieces in descending address order never merge. Odd sizes, one empty piece.
    std::vector<std::byte> stream;
    for (size_t at = 50'000; at > 10'000;) {
      const size_t bytes = std::min<size_t>(at - 10'000, random() % 3000);
      at -= bytes;
      send.from.add(data.data() + at, bytes);
      stream.insert(stream.end(), data.begin() + static_cast<ptrdiff_t>(at),
                    data.begin() + static_cast<ptrdiff_t>(at + bytes));
    }
    size_t used = 0;
    for (size_t at = 49'999; used < stream.size();) {
      const size_t bytes = std::min<size_t>(stream.size() - used, random() % (round + 2) * 100);
      at -= bytes;
      recv.into.add(got.data() + at, bytes);
      std::copy_n(stream.begin() + static_cast<ptrdiff_t>(used), bytes,
                  expected.begin() + static_cast<ptrdiff_t>(at));
      used += bytes;
    }
    this->post(this->b(), recv, this->tag(round), stream.size());
    this->post(this->a(), send, this->tag(round), stream.size());
    this->run_until_done();
    ASSERT_TRUE(got == expected);
  }
}

TYPED_TEST_P(LinkContract, CombinesWholeElementsInPlaceAndOutOfPlace) {
  uint32_t number = 0;
  for (const size_t elements : {1u, 7u, 255u, 256u, 257u, 100'003u}) {
    for (const bool in_place : {true, false}) {
      for (const bool early : {true, false}) {
        const size_t bytes = 4 * elements;
        const Tag tag = this->tag(++number);
        auto incoming = stream_bytes(number, bytes + 1);
        auto operand = stream_bytes(number + 9, bytes);
        auto got = this->fresh(bytes);
        std::vector<std::byte> expected(bytes);
        combine_int32(expected.data(), operand.data(), incoming.data() + 1, elements);
        Recv& recv = this->recvs.emplace_back();
        recv.combine = combine_int32;
        recv.element_bytes = 4;
        std::vector<std::byte>& into = in_place ? operand : got;
        const size_t cut = bytes / 8 * 4;
        recv.operand.add(operand.data(), bytes);
        recv.into.add(into.data(), cut);
        recv.into.add(into.data() + cut, bytes - cut);
        if (!early) this->post(this->b(), recv, tag, bytes);
        this->send(this->a(), tag, incoming.data() + 1, bytes);
        if (early) {
          this->settle();
          this->post(this->b(), recv, tag, bytes);
        }
        this->run_until_done();
        ASSERT_TRUE(into == expected) << elements << " elements";
      }
    }
  }
}

TYPED_TEST_P(LinkContract, AcceptsOtherSettingsAtTheOtherEnd) {
  for (const auto& [mine, theirs] :
       {std::pair{size_t{0}, size_t{100'000}}, std::pair{size_t{100'000}, size_t{0}}}) {
    this->connect({.eager_bytes = mine}, {.eager_bytes = theirs});
    for (const bool early : {false, true}) {
      auto data = stream_bytes(0, 5000), got = this->fresh(5000);
      if (!early) this->recv(this->b(), this->tag(early), got.data(), 5000);
      this->send(this->a(), this->tag(early), data.data(), 5000);
      if (early) {
        this->settle();
        this->recv(this->b(), this->tag(early), got.data(), 5000);
      }
      this->run_until_done();
      EXPECT_TRUE(got == data);
    }
    this->run([&] { return this->a().flushed(); });
    EXPECT_EQ(this->b().failure(), nullptr);
  }
}

TYPED_TEST_P(LinkContract, ManyRandomMessagesBothWays) {
  std::mt19937_64 random(3);
  constexpr uint32_t kMessages = 4000;
  struct Exchange {
    std::vector<std::byte> data, got, expected;
  };
  std::array<std::vector<Exchange>, 2> all;
  for (auto& direction : all) direction.resize(kMessages);
  const auto size = [&] {
    const size_t magnitude = random() % 100;
    return 4 * (magnitude < 60   ? random() % 64
                : magnitude < 95 ? random() % 2000
                                 : random() % 60'000);
  };
  uint32_t posted = 0;
  for (uint32_t first = 0; first < kMessages; first += 50) {
    std::vector<std::function<void()>> posts;
    for (uint32_t i = first; i < first + 50; ++i) {
      for (size_t side : {0u, 1u}) {
        Exchange& exchange = all[side][i];
        const size_t bytes = size();
        exchange.data = stream_bytes(2 * i + side, bytes);
        exchange.got = stream_bytes(i, bytes);
        const Tag tag{.communicator = 1 + i % 3,
                      .channel = i % 2,
                      .sequence = i / 4,
                      .slice = i % 7,
                      .round = static_cast<uint16_t>(i % 4)};
        const bool combine = random() % 3 == 0;
        exchange.expected = exchange.data;
        if (combine)
          combine_int32(exchange.expected.data(), exchange.got.data(), exchange.data.data(),
                        bytes / 4);
        posts.push_back([this, &exchange, side, tag] {
          this->send(*this->links[side], tag, exchange.data.data(), exchange.data.size(), 77);
        });
        posts.push_back([this, &exchange, side, tag, combine] {
          Recv& recv = this->recvs.emplace_back();
          recv.into.add(exchange.got.data(), exchange.got.size());
          if (combine) {
            recv.operand = recv.into;
            recv.combine = combine_int32;
            recv.element_bytes = 4;
          }
          this->post(*this->links[1 - side], recv, tag, exchange.got.size(), 77);
        });
      }
    }
    std::shuffle(posts.begin(), posts.end(), random);
    for (auto& post : posts) {
      post();
      if (++posted % 3 == 0) this->step();
    }
    this->run_until_done();
  }
  for (const auto& direction : all)
    for (uint32_t i = 0; i < kMessages; ++i)
      ASSERT_TRUE(direction[i].got == direction[i].expected) << "message " << i;
  this->run([&] { return this->a().flushed(); });
  this->run([&] { return this->b().flushed(); });
}

TYPED_TEST_P(LinkContract, EarlyMessagesAreBounded) {
  this->connect({.eager_bytes = 1000}, {.eager_bytes = 1000, .early_bytes_limit = 10'000});
  constexpr uint32_t kMessages = 3000;
  std::vector<std::vector<std::byte>> data, got;
  for (uint32_t i = 0; i < kMessages; ++i) {
    data.push_back(stream_bytes(i, 1000));
    got.push_back(this->fresh(1000));
  }
  for (uint32_t i = 0; i < kMessages; ++i)
    this->send(this->a(), this->tag(i), data[i].data(), 1000);
  this->settle();
  uint32_t arrived = 0;
  size_t bytes;
  for (uint32_t i = 0; i < kMessages; ++i) arrived += this->b().arrived(this->tag(i), &bytes);
  EXPECT_EQ(arrived, 8u) << "1000 bytes each, and a little more for the table";
  // A message posted now passes the others although the limit is reached.
  this->recv(this->b(), this->tag(8), got[8].data(), 1000);
  this->settle();
  EXPECT_TRUE(got[8] == data[8]);
  // So does a later message: the sender may have made many calls before the one awaited here.
  this->recv(this->b(), this->tag(99), got[99].data(), 1000);
  this->settle();
  EXPECT_TRUE(got[99] == data[99]);
  for (uint32_t i = 0; i < kMessages; ++i) {
    if (i != 8 && i != 99) this->recv(this->b(), this->tag(i), got[i].data(), 1000);
    if (i % 50 == 0) this->settle();
  }
  this->run_until_done();
  EXPECT_TRUE(got == data);
}

// Neither end receives the other's messages, and both wires are full.
TYPED_TEST_P(LinkContract, SleepsWhileItsPeerNeitherReadsNorIsRead) {
  constexpr size_t kBytes = 100'000, kMessages = 400;
  constexpr LinkOptions kOptions{.eager_bytes = kBytes, .early_bytes_limit = 10'000};
  this->connect(kOptions, kOptions);
  auto data = stream_bytes(0, kBytes);
  for (uint32_t i = 0; i < kMessages; ++i) {
    this->send(this->a(), this->tag(i), data.data(), kBytes);
    this->send(this->b(), this->tag(i), data.data(), kBytes);
  }
  this->run([&] {
    this->settle();
    return !this->a().progress() && !this->b().progress();
  });
  EXPECT_GT(this->pending, 0u) << "the wires hold less than that";
  for (size_t side : {0, 1}) {
    // A wire may refuse a sleep once without a reason.
    this->run([&] {
      const bool may = this->links[side]->prepare_sleep();
      EXPECT_FALSE(may && this->wires.pollers[side]->poll()) << "it would wake at once";
      this->links[side]->end_sleep();
      return may;
    });
  }
  // The other end keeps at work meanwhile: a network that loses packets needs both to repeat one.
  std::thread leaving([&left = this->links[0]] { left.reset(); });
  if constexpr (!TypeParam::kThreads) leaving.join();
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (this->b().failure() == nullptr && !deadline.expired()) {
    this->b().progress();
    this->b().prepare_sleep();
    this->b().end_sleep();
    this->wires.pollers[1]->poll();
  }
  EXPECT_NE(this->b().failure(), nullptr) << "the peer has gone";
  if (leaving.joinable()) leaving.join();
}

TYPED_TEST_P(LinkContract, TwoThreadsExchangeMessagesAndSleep) {
  if constexpr (!TypeParam::kThreads) GTEST_SKIP() << "one thread only";
  constexpr uint32_t kRounds = 2000;
  const auto play = [&](size_t side) {
    std::mt19937_64 random(5);  // the same sizes on both sides
    for (uint32_t round = 0; round < kRounds; ++round) {
      const size_t bytes = random() % 10 == 0 ? random() % 300'000 : random() % 2000;
      auto data = stream_bytes(round + side, bytes);
      std::vector<std::byte> got(bytes);
      Send send;
      Recv recv;
      uint32_t left = 2;
      send.from.add(data.data(), bytes);
      recv.into.add(got.data(), bytes);
      const auto post = [&](auto& message) {
        message.tag = TestFixture::tag(round);
        message.bytes = bytes;
        message.pending = &left;
        this->links[side]->post(message);
      };
      post(recv);
      post(send);
      while (left > 0) {
        if (this->links[side]->progress()) continue;
        ASSERT_EQ(this->links[side]->failure(), nullptr);
        if (this->links[side]->prepare_sleep()) this->wires.pollers[side]->sleep(Deadline::never());
        this->links[side]->end_sleep();
      }
      ASSERT_TRUE(got == stream_bytes(round + 1 - side, bytes)) << "round " << round;
    }
    while (!this->links[side]->flushed()) this->wires.pollers[side]->poll();
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
}

REGISTER_TYPED_TEST_SUITE_P(LinkContract, CarriesMessagesOfEverySize, CountsDownInsideProgressOnly,
                            MatchesByTagInAnyOrder, TellsEveryPartOfATagApart,
                            ALargeMessageDoesNotHoldUpSmallOnes, GathersAndScattersPieces,
                            CombinesWholeElementsInPlaceAndOutOfPlace,
                            AcceptsOtherSettingsAtTheOtherEnd, ManyRandomMessagesBothWays,
                            EarlyMessagesAreBounded, SleepsWhileItsPeerNeitherReadsNorIsRead,
                            TwoThreadsExchangeMessagesAndSleep);

}  // namespace hccl_like
