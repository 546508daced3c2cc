#include "transport/testing/faulty.h"

#include <gtest/gtest.h>

#include "transport/testing/link_contract.h"
#include "transport/testing/link_endings_contract.h"
#include "transport/testing/sim_wire.h"
#include "transport/testing/traced.h"

namespace hccl_like {
namespace {

// Both decorators over both ends: a link must not notice them.
struct FaultyWires {
  static constexpr bool kThreads = false;
  static WirePair make() {
    static WireCounts counts;
    SimPair sim = make_sim_pair({.capacity = 30'000});
    WirePair pair;
    pair.ends[0] = std::make_unique<FaultyWire>(std::move(sim.a), Faults{.seed = 1});
    pair.ends[1] = std::make_unique<FaultyWire>(
        std::make_unique<TracedWire>(std::move(sim.b), counts), Faults{.seed = 2});
    return pair;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Faulty, LinkContract, FaultyWires);
INSTANTIATE_TYPED_TEST_SUITE_P(Faulty, LinkEndings, FaultyWires);

TEST(FaultyWire, ACutAtAnyByteFailsTheLinkAndCorruptsNothing) {
  for (uint64_t cut = 1; cut < 3000; cut += 7) {
    SimPair sim = make_sim_pair();
    Link a(std::move(sim.a), {});
    Link b(
        std::make_unique<FaultyWire>(std::move(sim.b), Faults{.seed = cut, .cut_after_bytes = cut}),
        {});
    auto data = stream_bytes(0, 2900);
    std::vector<std::byte> got(2900, std::byte{0xee});
    uint32_t sent = 1, received = 1;
    Send send;
    send.bytes = 2900;
    send.pending = &sent;
    send.from.add(data.data(), data.size());
    Recv recv;
    recv.bytes = 2900;
    recv.pending = &received;
    recv.into.add(got.data(), got.size());
    a.post(send);
    b.post(recv);
    for (int i = 0; i < 3000 && received > 0 && b.failure() == nullptr; ++i) {
      a.progress();
      b.progress();
    }
    if (received > 0) {
      ASSERT_NE(b.failure(), nullptr) << "cut at " << cut;
    } else {
      ASSERT_TRUE(got == data);
    }
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_TRUE(got[i] == data[i] || got[i] == std::byte{0xee});
  }
}

TEST(TracedWire, Counts) {
  WireCounts counts;
  SimPair sim = make_sim_pair({.capacity = 100});
  TracedWire wire(std::move(sim.a), counts);
  const auto data = stream_bytes(0, 150);
  const ConstRegion region{data.data(), data.size()};
  EXPECT_EQ(wire.write({&region, 1}), 100u);
  EXPECT_EQ(wire.write({&region, 1}), 0u);
  const ConstRegion back{data.data(), 30};
  EXPECT_EQ(sim.b->write({&back, 1}), 30u);
  std::vector<std::byte> into(10);
  EXPECT_EQ(wire.read(into), 10u);
  EXPECT_EQ(wire.peek(20).size(), 20u);
  wire.release(20);
  EXPECT_TRUE(wire.prepare_sleep({}));
  wire.end_sleep();
  EXPECT_EQ(counts.bytes_written, 100u);
  EXPECT_EQ(counts.writes, 2u);
  EXPECT_EQ(counts.refused_writes, 1u);
  EXPECT_EQ(counts.bytes_read, 30u);
  EXPECT_EQ(counts.sleeps, 1u);
}

}  // namespace
}  // namespace hccl_like
