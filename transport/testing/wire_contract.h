#pragma once
// Conformance tests for Wire. The test file of a transport instantiates them with a type like
//
//   struct TcpWires {
//     static constexpr bool kThreads = true;   // each end may have its own thread
//     static WirePair make();                  // two connected ends in this process
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, WireContract, TcpWires);
//
// A wire must hold at least 16 KiB in flight.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "transport/testing/wire_pair.h"
#include "transport/wire/poller.h"
#include "transport/wire/wire.h"

namespace hccl_like {

template <class Wires>
class WireContract : public WireTest<Wires> {};
TYPED_TEST_SUITE_P(WireContract);

TYPED_TEST_P(WireContract, IsEmptyAndHealthyAtFirst) {
  std::array<std::byte, 8> buffer;
  for (auto& end : this->pair.ends) {
    EXPECT_EQ(end->peek().size(), 0u);
    EXPECT_EQ(end->peek(4096).size(), 0u);
    EXPECT_EQ(end->read(buffer), 0u);
    EXPECT_EQ(end->failure(), nullptr);
    EXPECT_TRUE(end->flush());
    EXPECT_FALSE(end->transport().empty());
  }
  EXPECT_EQ(this->a().transport(), this->b().transport());
  EXPECT_EQ(this->a().alignment(), this->b().alignment());
  EXPECT_TRUE(std::has_single_bit(this->a().alignment()));
  EXPECT_LE(this->a().alignment(), 64u);
}

TYPED_TEST_P(WireContract, CarriesBothDirectionsInOrder) {
  this->write_all(this->a(), 0, 3);
  this->write_all(this->b(), 1000, 5);
  this->write_all(this->a(), 3, 4);
  this->read_all(this->b(), 0, 7);
  this->read_all(this->a(), 1000, 5);
}

TYPED_TEST_P(WireContract, WritesSeveralPiecesInOrder) {
  const std::vector<std::byte> data = stream_bytes(0, 1000);
  const auto from = [&](size_t offset, size_t bytes) {
    return ConstRegion{data.data() + offset, bytes};
  };
  const std::array pieces{from(0, 1), from(1, 0), from(1, 48), from(49, 300), from(349, 651)};
  size_t done = this->a().write(pieces);
  this->write_all(this->a(), done, 1000 - done);
  this->read_all(this->b(), 0, 1000);
}

TYPED_TEST_P(WireContract, TheMemoryIsFreeOnceWriteReturns) {
  std::vector<std::byte> data = stream_bytes(0, 777);
  const size_t done = this->write(this->a(), data);
  std::fill(data.begin(), data.end(), std::byte{0});
  this->write_all(this->a(), done, 777 - done);
  this->read_all(this->b(), 0, 777);
}

TYPED_TEST_P(WireContract, PeekShowsWhatIsWantedInOnePiece) {
  this->write_all(this->a(), 0, 5000);
  for (uint64_t at = 0; at < 4900; at += 7) {
    const size_t want = std::min<size_t>(4096, 4900 - at);
    const auto view = this->peek_until(this->b(), want);
    ASSERT_GE(view.size(), want);
    ASSERT_EQ(view[0], stream_byte(at));
    ASSERT_EQ(view[want - 1], stream_byte(at + want - 1));
    this->b().release(7);
  }
}

TYPED_TEST_P(WireContract, PeekDoesNotConsume) {
  this->write_all(this->a(), 0, 20);
  const auto first = this->peek_until(this->b(), 20);
  ASSERT_GE(first.size(), 20u);
  const auto again = this->peek_until(this->b(), 20);
  ASSERT_GE(again.size(), 20u);
  EXPECT_EQ(std::memcmp(again.data(), stream_bytes(0, 20).data(), 20), 0);
  this->b().release(5);
  this->read_all(this->b(), 5, 15);
}

TYPED_TEST_P(WireContract, PeekMoreThanThereIsShowsWhatThereIs) {
  this->write_all(this->a(), 0, 10);
  ASSERT_GE(this->peek_until(this->b(), 10).size(), 10u);
  for (int i = 0; i < 100; ++i) {
    this->poll();
    ASSERT_LE(this->b().peek(11).size(), 10u);
  }
  this->write_all(this->a(), 10, 1);
  EXPECT_GE(this->peek_until(this->b(), 11).size(), 11u);
  this->read_all(this->b(), 0, 11);
}

TYPED_TEST_P(WireContract, AFullWireTakesNothingAndLosesNothing) {
  const std::vector<std::byte>& data = this->endless;
  const uint64_t written = this->fill_a();
  ASSERT_GT(written, 0u);
  std::vector<std::byte> buffer(100'000);
  uint64_t read = 0;
  bool right = true;
  this->patiently([&] {
    const size_t part = this->b().read(buffer);
    for (size_t k = 0; k < part; ++k) right = right && buffer[k] == data[(read + k) % data.size()];
    read += part;
    this->a().flush();
    return read == written;
  });
  EXPECT_TRUE(right);
  ASSERT_EQ(read, written);
  EXPECT_EQ(this->b().read(buffer), 0u);
  this->write_all(this->a(), written % data.size(), 9);
  this->read_all(this->b(), written % data.size(), 9);
}

TYPED_TEST_P(WireContract, KeepsALongRandomStreamInOneThread) {
  std::mt19937_64 random(7);
  const std::vector<std::byte> data = stream_bytes(0, this->kMany);
  std::vector<std::byte> got(this->kMany);
  size_t written = 0, read = 0;
  this->patiently([&] {
    const size_t most = size_t{1} << (random() % 18);
    if (random() % 2 == 0) {
      written += this->write(
          this->a(), std::span(data).subspan(written, std::min(most, this->kMany - written)));
    } else if (random() % 2 == 0) {
      read += this->b().read(std::span(got).subspan(read, std::min(most, this->kMany - read)));
    } else {
      const auto view = this->b().peek(1 + random() % 4096);
      const size_t part = std::min(view.size(), most);
      if (part > 0) std::memcpy(got.data() + read, view.data(), part);
      this->b().release(part);
      read += part;
    }
    return read == this->kMany;
  });
  ASSERT_EQ(read, this->kMany);
  EXPECT_TRUE(got == data);
}

TYPED_TEST_P(WireContract, TellsTheEndOnlyAfterTheLastByte) {
  this->write_all(this->a(), 0, 12'345);
  this->flush_a();
  this->pair.ends[0].reset();
  this->pair.pollers[0].reset();
  for (int i = 0; i < 10; ++i) this->poll();
  EXPECT_EQ(this->b().failure(), nullptr);
  this->read_all(this->b(), 0, 12'345);
  this->patiently([&] {
    EXPECT_EQ(this->b().peek().size(), 0u);
    return this->b().failure() != nullptr;
  });
  ASSERT_NE(this->b().failure(), nullptr);
  EXPECT_EQ(this->b().failure()->code, ErrorCode::kPeerLost);
  EXPECT_EQ(this->b().peek().size(), 0u);
  EXPECT_NE(this->b().failure(), nullptr) << "sticky";
}

TYPED_TEST_P(WireContract, TellsTheEndWhenTheRestIsShorterThanWanted) {
  this->write_all(this->a(), 0, 20);
  this->flush_a();
  ASSERT_GE(this->peek_until(this->b(), 20).size(), 20u);
  this->pair.ends[0].reset();
  this->pair.pollers[0].reset();
  this->patiently([&] {
    EXPECT_LE(this->b().peek(48).size(), 20u);
    return this->b().failure() != nullptr;
  });
  ASSERT_NE(this->b().failure(), nullptr);
  EXPECT_EQ(this->b().failure()->code, ErrorCode::kPeerLost);
}

TYPED_TEST_P(WireContract, SleepsOnARestThatIsShorterThanWanted) {
  this->write_all(this->a(), 0, 20);
  ASSERT_GE(this->peek_until(this->b(), 20).size(), 20u);
  EXPECT_LE(this->b().peek(48).size(), 20u);
  EXPECT_TRUE(this->b().prepare_sleep({}));
  this->b().end_sleep();
  this->write_all(this->a(), 20, 28);
  ASSERT_GE(this->peek_until(this->b(), 48).size(), 48u);
  EXPECT_FALSE(this->b().prepare_sleep({}));
  this->b().end_sleep();
}

TYPED_TEST_P(WireContract, DoesNotSleepWhenBytesAreThere) {
  this->write_all(this->a(), 0, 1);
  ASSERT_EQ(this->peek_until(this->b(), 1).size(), 1u);
  EXPECT_FALSE(this->b().prepare_sleep({}));
  this->b().end_sleep();
  this->read_all(this->b(), 0, 1);
}

TYPED_TEST_P(WireContract, SleepsOnlyForSpaceWhenFull) {
  EXPECT_FALSE(this->a().prepare_sleep({.space = true})) << "there is space";
  this->a().end_sleep();
  EXPECT_TRUE(this->a().prepare_sleep({}));
  this->a().end_sleep();
}

TYPED_TEST_P(WireContract, BytesThatAreLeftUnreadDoNotKeepItAwake) {
  const auto may_sleep = [&](WakeFor wake) {
    const bool may = this->a().prepare_sleep(wake);
    const auto& poller = this->pair.pollers[0];
    EXPECT_FALSE(may && poller != nullptr && poller->poll()) << "it would wake at once";
    this->a().end_sleep();
    return may;
  };
  this->write_all(this->b(), 0, 1);
  ASSERT_EQ(this->peek_until(this->a(), 1).size(), 1u);
  EXPECT_FALSE(may_sleep({}));
  EXPECT_TRUE(may_sleep({.bytes = false}));
  EXPECT_FALSE(may_sleep({.bytes = false, .space = true})) << "there is space";
  this->fill_a();
  EXPECT_FALSE(may_sleep({.space = true}));
  EXPECT_TRUE(may_sleep({.bytes = false, .space = true}));
  std::vector<std::byte> buffer(100'000);
  this->patiently([&] {
    this->b().read(buffer);
    this->a().flush();
    return !may_sleep({.bytes = false, .space = true});
  });
  this->read_all(this->a(), 0, 1);
}

TYPED_TEST_P(WireContract, BytesThatAreLeftUnreadDoNotHideThePeersEnd) {
  this->write_all(this->b(), 0, 3);
  ASSERT_EQ(this->peek_until(this->a(), 3).size(), 3u);
  this->patiently([&] { return this->a().peek(), this->b().flush(); });
  this->pair.ends[1].reset();
  this->pair.pollers[1].reset();
  this->patiently([&] {
    const bool may = this->a().prepare_sleep({.bytes = false});
    this->a().end_sleep();
    return !may;
  });
  EXPECT_EQ(this->a().failure(), nullptr);
  this->read_all(this->a(), 0, 3);
  this->patiently([&] { return this->a().peek(), this->a().failure() != nullptr; });
}

TYPED_TEST_P(WireContract, KeepsALongRandomStreamBetweenSleepingThreads) {
  if constexpr (!TypeParam::kThreads) GTEST_SKIP() << "one thread only";
  // Each side sleeps when it has nothing to do. A lost wake-up costs 100 ms.
  std::atomic<int> slept_long{0};
  const auto sleep = [&](size_t side, bool for_space) {
    Wire& wire = *this->pair.ends[side];
    if (wire.prepare_sleep({.space = for_space})) {
      const auto begin = Deadline::Clock::now();
      this->pair.pollers[side]->sleep(Deadline::never());
      if (Deadline::Clock::now() - begin > std::chrono::milliseconds(95)) ++slept_long;
    }
    wire.end_sleep();
  };
  const std::vector<std::byte> data = stream_bytes(0, this->kMany);
  std::vector<std::byte> got(this->kMany);
  std::thread writer([&] {
    std::mt19937_64 random(1);
    for (size_t done = 0; done < this->kMany;) {
      const size_t most = std::min(size_t{1} << (random() % 18), this->kMany - done);
      const size_t taken = this->write(this->a(), std::span(data).subspan(done, most));
      done += taken;
      if (taken == 0) sleep(0, true);
    }
    while (!this->a().flush()) sleep(0, true);
  });
  std::mt19937_64 random(2);
  for (size_t done = 0; done < this->kMany;) {
    const size_t most = std::min(size_t{1} << (random() % 18), this->kMany - done);
    const size_t taken = this->b().read(std::span(got).subspan(done, most));
    done += taken;
    if (taken == 0) sleep(1, false);
  }
  writer.join();
  EXPECT_TRUE(got == data);
  EXPECT_LE(slept_long, 1) << "wake-ups were lost";
}

TYPED_TEST_P(WireContract, PingPongBetweenSleepingThreadsLosesNoWakeUp) {
  if constexpr (!TypeParam::kThreads) GTEST_SKIP() << "one thread only";
  constexpr uint32_t kRounds = 3000;
  std::atomic<int> slept_long{0};
  const auto play = [&](size_t side) {
    Wire& wire = *this->pair.ends[side];
    for (uint32_t round = 0; round < kRounds; ++round) {
      if (round % 2 == side) {
        const ConstRegion region{reinterpret_cast<const std::byte*>(&round), sizeof round};
        if (wire.write({&region, 1}) != sizeof round) ADD_FAILURE() << "not full, yet no space";
        continue;
      }
      uint32_t got = 0;
      while (wire.peek(sizeof got).size() < sizeof got) {
        if (wire.prepare_sleep({})) {
          const auto begin = Deadline::Clock::now();
          this->pair.pollers[side]->sleep(Deadline::never());
          if (Deadline::Clock::now() - begin > std::chrono::milliseconds(95)) ++slept_long;
        }
        wire.end_sleep();
      }
      std::memcpy(&got, wire.peek(sizeof got).data(), sizeof got);
      wire.release(sizeof got);
      ASSERT_EQ(got, round);
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_LE(slept_long, 1) << "wake-ups were lost";
}

TYPED_TEST_P(WireContract, ASleeperWakesWhenThePeerGoes) {
  if constexpr (!TypeParam::kThreads) GTEST_SKIP() << "one thread only";
  std::thread leaver([&] {
    this->pair.ends[0].reset();
    this->pair.pollers[0].reset();
  });
  for (int i = 0; i < 1000 && this->b().failure() == nullptr; ++i) {
    if (this->b().prepare_sleep({})) this->pair.pollers[1]->sleep(Deadline::never());
    this->b().end_sleep();
    this->b().peek();
  }
  leaver.join();
  ASSERT_NE(this->b().failure(), nullptr);
}

REGISTER_TYPED_TEST_SUITE_P(
    WireContract, IsEmptyAndHealthyAtFirst, CarriesBothDirectionsInOrder,
    WritesSeveralPiecesInOrder, TheMemoryIsFreeOnceWriteReturns, PeekShowsWhatIsWantedInOnePiece,
    PeekDoesNotConsume, PeekMoreThanThereIsShowsWhatThereIs, AFullWireTakesNothingAndLosesNothing,
    KeepsALongRandomStreamInOneThread, TellsTheEndOnlyAfterTheLastByte,
    TellsTheEndWhenTheRestIsShorterThanWanted, SleepsOnARestThatIsShorterThanWanted,
    DoesNotSleepWhenBytesAreThere, SleepsOnlyForSpaceWhenFull,
    BytesThatAreLeftUnreadDoNotKeepItAwake, BytesThatAreLeftUnreadDoNotHideThePeersEnd,
    KeepsALongRandomStreamBetweenSleepingThreads, PingPongBetweenSleepingThreadsLosesNoWakeUp,
    ASleeperWakesWhenThePeerGoes);

}  // namespace hccl_like
