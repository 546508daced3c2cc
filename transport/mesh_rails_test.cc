// Wires with several rails, from mesh to mesh.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "transport/bootstrap_rails.h"
#include "transport/testing/mesh_rank.h"
#include "transport/testing/run_ranks.h"
#include "transport/wire_contract.h"

namespace hccl_like {
namespace {

Address address(const char* text) { return *Address::parse(text); }

std::vector<std::string> ordered_for(size_t rail, const std::vector<Address>& addresses) {
  const std::vector<InterfaceAddress> own{{"eth0", address("10.0.0.1"), 24},
                                          {"eth0", address("fd00::1"), 64},
                                          {"eth1", address("10.0.1.1"), 24}};
  std::vector<std::string> texts;
  for (const Address& one : order_for_rail(addresses, own, rail)) texts.push_back(one.to_string());
  return texts;
}

TEST(Rails, TakeTurnsWithTheNetworks) {
  const std::vector<Address> peers{address("10.0.0.2"), address("fd00::2"), address("10.0.1.2"),
                                   address("192.168.7.2")};
  using Texts = std::vector<std::string>;
  const Texts unchanged{"10.0.0.2", "fd00::2", "10.0.1.2", "192.168.7.2"};
  EXPECT_EQ(ordered_for(0, peers), unchanged);
  EXPECT_EQ(ordered_for(1, peers), (Texts{"10.0.1.2", "10.0.0.2", "fd00::2", "192.168.7.2"}));
  EXPECT_EQ(ordered_for(2, peers), (Texts{"192.168.7.2", "10.0.0.2", "fd00::2", "10.0.1.2"}))
      << "behind a router every address may be a network of its own";
  EXPECT_EQ(ordered_for(3, peers), unchanged);
  EXPECT_EQ(ordered_for(5, {}), Texts{});
}

// Both directions at once; the order of the numbers says who came first.
void exchange(MeshRank& me, Link& link, size_t bytes, uint32_t sequence, uint64_t seed) {
  const auto out = stream_bytes(seed, bytes);
  std::vector<std::byte> in(bytes);
  uint32_t pending = 2;
  Send send;
  Recv recv;
  send.tag = recv.tag = {.communicator = me.roster.communicator, .sequence = sequence};
  send.bytes = recv.bytes = bytes;
  send.pending = recv.pending = &pending;
  send.from.add(const_cast<std::byte*>(out.data()), bytes);
  recv.into.add(in.data(), bytes);
  link.post(recv);
  link.post(send);
  me.drive([&] { return pending == 0; });
  if (in != out) throw_error(ErrorCode::kMismatch, "other bytes came");
}

TEST(Rails, AreMadeWhenEnoughHasPassed) {
  const auto outcomes = run_ranks(2, [](int rank, Store& store) -> int {
    Config config = config_with({"tcp"});
    config.tcp_rails = {3};
    MeshRank me(config);
    Link& link = *me.join(store, rank, 2)[static_cast<size_t>(1 - rank)];
    exchange(me, link, 1'000, 0, 7);
    const auto connections = [&] {
      const std::string text = me.mesh.describe(link);
      return std::ranges::count(text, '+') + 1;
    };
    if (connections() != 1) throw_misuse("too early: " + me.mesh.describe(link));
    exchange(me, link, 9'000'001, 1, 11);
    me.drive([&] { return connections() == 3; });
    exchange(me, link, 3'000'001, 2, 13);
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes));
}

}  // namespace
}  // namespace hccl_like
