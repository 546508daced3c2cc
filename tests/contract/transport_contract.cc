// hccl_like_transport_contract NAME=PATH [GoogleTest's options]: checks that a transport module
// keeps the contract of a wire.
//
// For those who write modules: it loads the module as hccl-like does, opens two ends in this
// process, connects them, and runs the tests that hccl-like's own transports pass. NAME alone is
// one of those, as the settings in the environment have it. Ends with 77 if the transport cannot be
// opened here.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "core/base/error.h"
#include "transport/mesh/transports.h"
#include "transport/testing/link_contract.h"
#include "transport/testing/remote_memory_contract.h"
#include "transport/testing/transport_pair.h"

namespace hccl_like {
namespace {

constexpr int kCannotBeOpened = 77;

std::string transport_name, module_path;

std::unique_ptr<Transport> open(const std::string& self_id, Poller& poller) {
  Config config = Config::from_environment();
  config.transports = {transport_name};
  if (!module_path.empty()) config.transport_modules.paths[transport_name] = module_path;
  return std::move(open_transports(config, {}, self_id, poller).open.at(0));
}

WirePair pair() { return connected_pair(open, /*together=*/module_path.empty()); }

struct Wires {
  static constexpr bool kThreads = true;
  static constexpr bool kAtOnce = true;
  static WirePair make() { return pair(); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Module, WireContract, Wires);
INSTANTIATE_TYPED_TEST_SUITE_P(Module, LinkContract, Wires);
INSTANTIATE_TYPED_TEST_SUITE_P(Module, RemoteMemoryContract, Wires);

// A peer may say anything.
TEST(TransportContract, APlaceThatIsWrongIsNotRead) {
  if (module_path.empty()) GTEST_SKIP() << "libfabric's providers end the connection";
  const WirePair wires = pair();
  RemoteMemory* const memory = wires.ends[1]->extensions().remote_memory;
  if (memory == nullptr) GTEST_SKIP() << "this transport does not read the peer's memory";
  RemotePlace place;
  place.words.fill(UINT64_MAX / 2);
  std::vector<std::byte> into(4096);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  std::optional<uint32_t> read;
  while (!read && !deadline.expired()) read = memory->read(place, 0, into);
  ASSERT_TRUE(read);
  while (memory->state(*read) == RemoteMemory::State::kUnderWay && !deadline.expired())
    memory->progress();
  EXPECT_EQ(memory->state(*read), RemoteMemory::State::kFailed);
}

TEST(TransportContract, PublishesAnAddressThatFits) {
  Poller poller;
  const auto transport = open(std::string(kIdDigits, 'a'), poller);
  EXPECT_EQ(transport->name(), transport_name);
  EXPECT_LE(transport->address().size(), Transport::kLongestAddress);
}

TEST(TransportContract, OpensAgainAfterItWasClosed) {
  for (int i = 0; i < 3; ++i) {
    Poller poller;
    const auto transport = open(std::string(kIdDigits, 'b'), poller);
    EXPECT_FALSE(poller.poll());
  }
}

TEST(TransportContract, WiresToSeveralPeersDontMix) {
  std::vector<WirePair> pairs;
  for (size_t i = 0; i < 3; ++i) pairs.push_back(pair());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::vector<std::byte> data = stream_bytes(1000 * i, 500);
    const ConstRegion region{data.data(), data.size()};
    ASSERT_EQ(pairs[i].ends[0]->write({&region, 1}), 500u);
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::vector<std::byte> got(500);
    for (size_t done = 0; done < got.size();) {
      ASSERT_FALSE(deadline.expired());
      for (auto& one : pairs)
        for (auto& poller : one.pollers) poller->poll();
      pairs[i].ends[0]->flush();
      done += pairs[i].ends[1]->read(std::span(got).subspan(done));
    }
    EXPECT_EQ(got, stream_bytes(1000 * i, 500));
  }
}

int run() {
  try {
    Poller poller;
    open(std::string(kIdDigits, 'c'), poller);
  } catch (const Exception& exception) {
    if (exception.code() != ErrorCode::kUnsupported) throw;
    std::cerr << "skipped: " << exception.what() << "\n";
    return kCannotBeOpened;
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace hccl_like

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  if (count != 2) {
    std::cerr << "usage: " << arguments[0] << " NAME=/path/to/module.so [--gtest_...]\n";
    return 2;
  }
  const std::string module = arguments[1];
  const size_t equals = module.find('=');
  hccl_like::transport_name = module.substr(0, equals);
  if (equals != std::string::npos) hccl_like::module_path = module.substr(equals + 1);
  return hccl_like::run();
}
