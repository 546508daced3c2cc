// Wires with several rails, from mesh to mesh.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "transport/bootstrap/rails.h"
#include "transport/testing/connected_sockets.h"
#include "transport/testing/mesh_rank.h"
#include "transport/testing/run_ranks.h"
#include "transport/testing/wire_contract.h"

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

TEST(Rails, KnowThatTheirWireIsGone) {
  Poller poller;
  auto sockets = connected_sockets(AF_INET);
  const TcpOptions tcp{.broke = std::make_shared<bool>(false)};
  auto wire = std::make_unique<RailedWire>(
      std::make_unique<TcpWire>(std::move(sockets[0]), poller, tcp, "a test:1"), RailOptions{});
  const Identity self = new_identity(JobKey());
  const Rails rails(*wire, WireSide::kConnector, self, {"rank 1", self, {{}}}, tcp, poller,
                    "a test:1", "");
  EXPECT_EQ(rails.down(), 0u);
  wire->rail(0)->stop("a test");
  EXPECT_EQ(rails.down(), 1u);
  EXPECT_TRUE(rails.is_restless());
  wire.reset();
  EXPECT_TRUE(rails.gone());
  EXPECT_FALSE(rails.is_restless());
}

// A rank, and what it exchanges with the only other one. The mesh goes first: what is on its way
// may be looked at until then.
class Exchanging {
 public:
  Exchanging(size_t rails, Store& store, int rank) : me_(config_of(rails)) {
    link_ = me_.join(store, rank, 2)[static_cast<size_t>(1 - rank)];
  }

  // `count` messages, both directions at once; the order of the numbers says who came first.
  void exchange(size_t bytes, uint32_t sequence, size_t count = 1) {
    out_ = stream_bytes(sequence, bytes * count);
    in_.assign(out_.size(), {});
    sends_.assign(count, {});
    receives_.assign(count, {});
    pending_ = static_cast<uint32_t>(2 * count);
    for (uint32_t i = 0; i < count; ++i) {
      Send& send = sends_[i];
      Recv& recv = receives_[i];
      send.tag = recv.tag = {.communicator = me_.roster.communicator, .sequence = sequence + i};
      send.bytes = recv.bytes = bytes;
      send.pending = recv.pending = &pending_;
      send.from.add(out_.data() + i * bytes, bytes);
      recv.into.add(in_.data() + i * bytes, bytes);
      link_->post(recv);
      link_->post(send);
    }
    me_.drive([&] { return pending_ == 0; });
    if (in_ != out_) throw_error(ErrorCode::kMismatch, "other bytes came");
  }
  // Takes in who comes, and nothing of what they send.
  void read_nothing_for(std::chrono::milliseconds time) {
    for (const Deadline deadline = Deadline::after(time); !deadline.expired();) {
      me_.poller.poll();
      me_.mesh.poll();
    }
  }
  void wait_for_connections(ptrdiff_t count) {
    me_.drive([&] { return connections() == count; });
  }
  ptrdiff_t connections() const {
    const std::string text = me_.mesh.describe(*link_);
    return std::ranges::count(text, '+') + 1;
  }

 private:
  static Config config_of(size_t rails) {
    Config config = config_with({"tcp"});
    config.tcp_rails = {rails};
    return config;
  }
  uint32_t pending_ = 0;
  std::vector<Send> sends_;
  std::vector<Recv> receives_;
  std::vector<std::byte> out_, in_;
  MeshRank me_;
  Link* link_;
};

TEST(Rails, AreMadeWhenEnoughHasPassed) {
  const auto outcomes = run_ranks(2, [](int rank, Store& store) -> int {
    Exchanging me(3, store, rank);
    me.exchange(1'000, 0);
    if (me.connections() != 1) throw_misuse("too early");
    me.exchange(9'000'001, 1);
    me.wait_for_connections(3);
    me.exchange(3'000'001, 2);
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

// The end that makes them sees by what it has written that they are worth it, before the other one
// has read as much.
TEST(Rails, AreAllTakenInByWhoHasReadLittle) {
  for (const int late : {0, 1}) {
    const auto outcomes = run_ranks(2, [late](int rank, Store& store) -> int {
      Exchanging me(8, store, rank);
      me.exchange(1'000, 0);
      if (rank == late) me.read_nothing_for(std::chrono::milliseconds(200));
      me.exchange(10'000, 1, 40);
      me.wait_for_connections(8);
      me.exchange(3'000'001, 100);
      return 0;
    });
    EXPECT_TRUE(all_ok(outcomes)) << "rank " << late << " is late; " << to_string(outcomes);
  }
}

}  // namespace
}  // namespace hccl_like
