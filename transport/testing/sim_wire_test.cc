#include "transport/testing/sim_wire.h"

#include <gtest/gtest.h>

#include "transport/testing/link_contract.h"
#include "transport/testing/link_endings_contract.h"
#include "transport/testing/wire_contract.h"

namespace hccl_like {
namespace {

template <size_t kCapacity, size_t kChunk, uint64_t kDelay, size_t kAlignment = 1>
struct SimWires {
  static constexpr bool kThreads = false;
  static WirePair make() {
    SimPair sim = make_sim_pair({.capacity = kCapacity,
                                 .seed = kCapacity + kChunk,
                                 .chunk = kChunk,
                                 .delay = kDelay,
                                 .alignment = kAlignment});
    WirePair pair;
    pair.ends = {std::move(sim.a), std::move(sim.b)};
    return pair;
  }
};
using Plain = SimWires<64 << 10, 0, 0>;
using Chunked = SimWires<20'011, 997, 0>;
using Delayed = SimWires<64 << 10, 4001, 30, /*kAlignment=*/64>;
INSTANTIATE_TYPED_TEST_SUITE_P(Sim, WireContract, Plain);
INSTANTIATE_TYPED_TEST_SUITE_P(Sim, LinkContract, Plain);
INSTANTIATE_TYPED_TEST_SUITE_P(Sim, LinkEndings, Plain);
INSTANTIATE_TYPED_TEST_SUITE_P(SimInChunks, WireContract, Chunked);
INSTANTIATE_TYPED_TEST_SUITE_P(SimInChunks, LinkContract, Chunked);
INSTANTIATE_TYPED_TEST_SUITE_P(SimInChunks, LinkEndings, Chunked);
INSTANTIATE_TYPED_TEST_SUITE_P(SimWithDelay, WireContract, Delayed);
INSTANTIATE_TYPED_TEST_SUITE_P(SimWithDelay, LinkContract, Delayed);
INSTANTIATE_TYPED_TEST_SUITE_P(SimWithDelay, LinkEndings, Delayed);

TEST(SimWire, ACutLosesWhatIsUnderWay) {
  SimPair pair = make_sim_pair();
  const std::vector<std::byte> data = stream_bytes(0, 10);
  const ConstRegion region{data.data(), data.size()};
  ASSERT_EQ(pair.a->write({&region, 1}), 10u);
  pair.cut();
  for (Wire* end : {pair.a.get(), pair.b.get()}) {
    EXPECT_EQ(end->peek().size(), 0u);
    ASSERT_NE(end->failure(), nullptr);
    EXPECT_EQ(end->failure()->code, ErrorCode::kPeerLost);
    EXPECT_EQ(end->write({&region, 1}), 0u);
  }
}

TEST(SimWire, TheSameSeedDoesTheSame) {
  const auto run = [](uint64_t seed) {
    SimPair pair = make_sim_pair({.seed = seed, .chunk = 50, .delay = 5});
    const std::vector<std::byte> data = stream_bytes(0, 5000);
    std::vector<size_t> trace;
    for (int i = 0; i < 100; ++i) {
      const ConstRegion region{data.data(), data.size()};
      trace.push_back(pair.a->write({&region, 1}));
      trace.push_back(pair.b->peek().size());
      pair.b->release(trace.back());
    }
    return trace;
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

}  // namespace
}  // namespace hccl_like
