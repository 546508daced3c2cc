// Ranks on hosts of their own, as far as the network can tell: each in its own network name space,
// joined by a cable.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "transport/mesh/mesh.h"
#include "transport/network/address.h"
#include "transport/testing/local_store.h"
#include "transport/testing/run_ranks.h"

namespace hccl_like {
namespace {

using std::chrono::seconds;

bool command(const std::string& line) {
  return std::system((line + " >/dev/null 2>&1").c_str()) == 0;
}

// Empty if name spaces can be made here.
std::string why_not() {
  if (::geteuid() != 0) return "not root";
  if (!command("ip -V")) return "the ip command is missing";
  const pid_t child = ::fork();
  if (child == 0)
    ::_exit(::unshare(CLONE_NEWNET) == 0 && command("ip link add one0 type veth peer name two0")
                ? 0
                : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? "" : "network name spaces cannot be made here";
}

// Commands by which each of two hosts sets up its network after the cable "eth0" is there; %d
// stands for 1 or 2.
struct Network {
  const char* name;
  std::vector<std::string> commands;
  Config config;
  std::string expected_interface = "eth0";
};

std::string fill_in(std::string line, int host) {
  for (size_t at; (at = line.find("%d")) != std::string::npos;)
    line.replace(at, 2, std::to_string(host));
  return line;
}

void build_host(const Network& network, int rank, Store& store) {
  const Deadline deadline = Deadline::after(seconds(20));
  if (::unshare(CLONE_NEWNET) != 0) throw_system("cannot make a network name space");
  store.set("pid" + std::to_string(rank), std::to_string(::getpid()));
  const std::string other = store.get("pid" + std::to_string(1 - rank), deadline);
  if (rank == 0) {
    if (!command("ip link add eth0 type veth peer name eth0 netns " + other))
      throw_misuse("no cable");
    store.set("cable", "yes");
  }
  store.get("cable", deadline);
  command("ip link set lo up");
  command("ip link set eth0 up");
  for (const auto& line : network.commands)
    if (!command(fill_in(line, rank + 1))) throw_misuse("failed: " + line);
  store.set("built" + std::to_string(rank), "yes");
  store.get("built" + std::to_string(1 - rank), deadline);
}

void exchange_a_number(Mesh& mesh, Poller& poller, Link& link, uint64_t communicator) {
  uint64_t out = 4711, in = 0;
  uint32_t pending = 2;
  Send send;
  Recv receive;
  send.tag = receive.tag = {.communicator = communicator};
  send.bytes = receive.bytes = sizeof out;
  send.pending = receive.pending = &pending;
  send.from.add(reinterpret_cast<std::byte*>(&out), sizeof out);
  receive.into.add(reinterpret_cast<std::byte*>(&in), sizeof in);
  link.post(receive);
  link.post(send);
  const Deadline deadline = Deadline::after(seconds(10));
  while (pending != 0) {
    if (deadline.expired()) throw_error(ErrorCode::kTimeout, "the number did not come");
    poller.poll();
    mesh.poll();
    link.progress();
  }
  if (in != 4711) throw_error(ErrorCode::kMismatch, "another number came");
}

class MeshAcrossNetworks : public testing::TestWithParam<Network> {};

TEST_P(MeshAcrossNetworks, FindsTheWayWithoutASetting) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const Network& network = GetParam();
  const auto outcomes = run_ranks(2, [&](int rank, Store& store) {
    build_host(network, rank, store);
    Poller poller;
    Mesh mesh(network.config, poller);
    const Deadline deadline = Deadline::after(seconds(20));
    const Roster roster = mesh.exchange(store, rank, 2, deadline);
    const auto begin = Deadline::Clock::now();
    const auto links = mesh.connect(roster.members, rank, deadline, {});
    const auto took = Deadline::Clock::now() - begin;
    Link& link = *links[static_cast<size_t>(1 - rank)];
    exchange_a_number(mesh, poller, link, roster.communicator);
    const std::string text = mesh.describe(link);
    if (text.find("via " + network.expected_interface + " (other host)") == std::string::npos)
      throw_misuse(text);
    if (took > seconds(3)) throw_misuse("it took too long");
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(MeshAcross, SaysInTimeThatNobodyAnswersOnACutCable) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const Network network{"cut", {"ip addr add 10.7.0.%d/24 dev eth0"}, {}};
  const auto outcomes = run_ranks(2, [&](int rank, Store& store) {
    build_host(network, rank, store);
    Poller poller;
    Mesh mesh(network.config, poller);
    const Roster roster = mesh.exchange(store, rank, 2, Deadline::after(seconds(20)));
    command("ip link set eth0 down");
    store.set("cut" + std::to_string(rank), "yes");
    store.get("cut" + std::to_string(1 - rank), Deadline::after(seconds(20)));
    const auto begin = Deadline::Clock::now();
    try {
      mesh.connect(roster.members, rank, Deadline::after(std::chrono::milliseconds(500)), {});
    } catch (const Exception& exception) {
      if (Deadline::Clock::now() - begin > seconds(2)) throw_misuse("it took too long");
      const std::string text = exception.what();
      const bool named = text.find("rank " + std::to_string(1 - rank) + " (") != std::string::npos;
      const bool address = text.find("10.7.0.") != std::string::npos;
      if (!named || !address) throw_misuse(text);
      return 0;
    }
    return 3;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

// The result of connect() to an address of this host: 0, or ECONNREFUSED.
int knock(const std::string& address, uint16_t port) {
  const Address there = *Address::parse(address);
  sockaddr_storage name;
  const socklen_t length = there.with_port(port, name);
  const Fd socket(::socket(there.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0 ? 0 : errno;
}

void expect_open(const Mesh& mesh, const std::vector<std::string>& open,
                 const std::vector<std::string>& shut) {
  for (const std::string& address : open)
    if (knock(address, mesh.self().port) != 0) throw_misuse(address + " is shut");
  for (const std::string& address : shut)
    if (knock(address, mesh.self().port) != ECONNREFUSED) throw_misuse(address + " is open");
}

const std::vector<std::string> kTwoNetworks{
    "ip addr add 10.7.0.%d/24 dev eth0", "ip addr add fd07::%d/64 dev eth0 nodad",
    "ip link add bbb0 type veth peer name inside", "ip link set bbb0 up",
    "ip addr add 10.8.0.%d/24 dev bbb0"};

TEST(MeshAcross, ListensOnlyAtTheAddressesThatAreOffered) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const auto outcomes = run_ranks(2, [&](int rank, Store& store) {
    build_host({"two networks", kTwoNetworks, {}}, rank, store);
    Config config;
    config.socket_ifname = InterfaceFilter::parse("=eth0");
    Poller poller;
    Mesh mesh(config, poller);
    mesh.exchange(store, rank, 2, Deadline::after(seconds(20)));
    const std::string me = std::to_string(rank + 1);
    expect_open(mesh, {"10.7.0." + me, "fd07::" + me}, {"127.0.0.1", "::1", "10.8.0." + me});
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

TEST(MeshAcross, ListensAtLoopbackAloneWhileAllRanksAreOnOneHost) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const auto outcomes = run_ranks(2, [&](int rank, Store& store) {
    build_host({"two networks", kTwoNetworks, {}}, rank, store);
    Poller poller;
    Mesh mesh({}, poller);
    const Deadline deadline = Deadline::after(seconds(20));
    const std::string me = std::to_string(rank + 1);
    const std::vector<std::string> outside{"10.7.0." + me, "fd07::" + me, "10.8.0." + me};
    for (int round = 0; round < 2; ++round) {
      PrefixedStore own(store, "alone" + me + std::to_string(round));
      mesh.exchange(own, 0, 1, deadline);
      expect_open(mesh, {"127.0.0.1", "::1"}, outside);
    }
    const Roster roster = mesh.exchange(store, rank, 2, deadline);
    expect_open(mesh, outside, {});
    const auto links = mesh.connect(roster.members, rank, deadline, {});
    exchange_a_number(mesh, poller, *links[static_cast<size_t>(1 - rank)], roster.communicator);
    PrefixedStore own(store, "again" + me);
    mesh.exchange(own, 0, 1, deadline);
    expect_open(mesh, outside, {});
    return 0;
  });
  EXPECT_TRUE(all_ok(outcomes)) << to_string(outcomes);
}

// Both hosts have the same port and the same container network, so every wrong address leads to
// oneself.
Config one_port() {
  Config config;
  config.port_range = PortRange{29876, 29876};
  return config;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, MeshAcrossNetworks,
    testing::Values(
        Network{"ipv4", {"ip addr add 10.7.0.%d/24 dev eth0"}, one_port()},
        Network{"ipv6_only", {"ip addr add fd07::%d/64 dev eth0 nodad"}, one_port()},
        Network{"ipv6_switched_off",
                {"sysctl -w net.ipv6.conf.all.disable_ipv6=1", "ip addr add 10.7.0.%d/24 dev eth0"},
                one_port()},
        Network{"both_families",
                {"ip addr add 10.7.0.%d/24 dev eth0", "ip addr add fd07::%d/64 dev eth0 nodad"},
                one_port()},
        Network{"container_networks_that_lead_nowhere",
                {"ip link add docker0 type veth peer name inside", "ip link set docker0 up",
                 "ip link set inside up", "ip addr add 172.17.0.1/16 dev docker0",
                 "ip addr add 10.7.0.%d/24 dev eth0"},
                one_port()},
        Network{"a_second_network_without_a_cable",
                {"ip link add aaa0 type veth peer name inside", "ip link set aaa0 up",
                 "ip link set inside up", "ip addr add 10.0.%d.1/24 dev aaa0",
                 "ip addr add 10.7.0.%d/24 dev eth0"},
                one_port()},
        Network{"a_point_to_point_route",
                {"ip addr add 10.%d.0.1/32 dev eth0", "ip route add 10.0.0.0/8 dev eth0"},
                one_port()}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace hccl_like
