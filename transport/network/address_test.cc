#include "transport/network/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hccl_like {
namespace {

InterfaceAddress on(std::string interface, std::string_view address, int prefix) {
  return {std::move(interface), Address::parse(address).value(), prefix};
}

std::vector<std::string> texts(const std::vector<InterfaceAddress>& list) {
  std::vector<std::string> result;
  for (const auto& one : list) result.push_back(one.address.to_string());
  return result;
}

std::vector<std::string> texts(const std::vector<Address>& list) {
  std::vector<std::string> result;
  for (const auto& one : list) result.push_back(one.to_string());
  return result;
}

// A host as they are: loopback first, containers, two networks.
const std::vector<InterfaceAddress> kHost{
    on("lo", "127.0.0.1", 8),        on("lo", "::1", 128),
    on("docker0", "172.17.0.1", 16), on("veth12ab", "169.254.3.4", 16),
    on("eth0", "10.0.0.5", 24),      on("eth0", "fe80::5", 64),
    on("eth0", "fd00::5", 64),       on("ib0", "192.168.7.5", 16),
};

using Texts = std::vector<std::string>;

TEST(Address, ReadsBothFamiliesAndNothingElse) {
  EXPECT_EQ(Address::parse("10.0.0.5")->to_string(), "10.0.0.5");
  EXPECT_EQ(Address::parse("FD00:0::5")->to_string(), "fd00::5");
  EXPECT_EQ(Address::parse("::ffff:10.0.0.5")->to_string(), "10.0.0.5");
  for (const char* text :
       {"", "localhost", "10.0.0", "10.0.0.256", "fd00::5%eth0", "10.0.0.5:80", "[::1]"})
    EXPECT_FALSE(Address::parse(text).has_value()) << text;
  EXPECT_FALSE(Address::parse(std::string(5000, '1')).has_value());
}

TEST(Address, PrintsPortsTheUsualWay) {
  EXPECT_EQ(with_port(*Address::parse("10.0.0.5"), 4000), "10.0.0.5:4000");
  EXPECT_EQ(with_port(*Address::parse("fd00::5"), 4000), "[fd00::5]:4000");
}

TEST(Address, SurvivesTheWayThroughASocketAddress) {
  for (const char* text : {"10.0.0.5", "fd00::5"}) {
    sockaddr_storage storage;
    const socklen_t length = Address::parse(text)->with_port(4000, storage);
    EXPECT_EQ(length, std::string(text) == "fd00::5" ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    EXPECT_EQ(Address::of(reinterpret_cast<const sockaddr*>(&storage)), Address::parse(text));
    EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(storage).sin_port, htons(4000));
  }
}

TEST(Address, KnowsWhatKindItIs) {
  EXPECT_TRUE(Address::parse("127.8.0.1")->is_loopback());
  EXPECT_TRUE(Address::parse("::1")->is_loopback());
  EXPECT_FALSE(Address::parse("::2")->is_loopback());
  EXPECT_TRUE(Address::parse("169.254.0.9")->is_link_local());
  EXPECT_TRUE(Address::parse("febf::1")->is_link_local());
  EXPECT_FALSE(Address::parse("fec0::1")->is_link_local());
  EXPECT_TRUE(Address::parse("0.0.0.0")->is_unspecified());
}

TEST(Address, ComparesSubnetsBitByBit) {
  const auto same = [](const char* a, const char* b, int prefix) {
    return Address::parse(a)->same_subnet(*Address::parse(b), prefix);
  };
  EXPECT_TRUE(same("10.0.0.5", "10.0.0.200", 24));
  EXPECT_FALSE(same("10.0.0.5", "10.0.1.5", 24));
  EXPECT_TRUE(same("10.0.0.5", "10.0.1.5", 23));
  EXPECT_FALSE(same("10.0.0.127", "10.0.0.128", 25));
  EXPECT_TRUE(same("10.0.0.5", "10.0.0.5", 32));
  EXPECT_FALSE(same("10.0.0.5", "10.0.0.4", 32));
  EXPECT_TRUE(same("fd00::1", "fd00::ffff", 64));
  EXPECT_FALSE(same("fd00::1", "10.0.0.5", 0));
}

TEST(Address, PublishesRealInterfacesFirstAndLoopbackLast) {
  EXPECT_EQ(texts(candidates(kHost, {})),
            (Texts{"10.0.0.5", "fd00::5", "192.168.7.5", "172.17.0.1", "127.0.0.1", "::1"}));
}

TEST(Address, FollowsTheUsersChoiceOfInterfaces) {
  const auto chosen = [](const char* filter) {
    return texts(candidates(kHost, InterfaceFilter::parse(filter)));
  };
  EXPECT_EQ(chosen("eth,ib"), (Texts{"10.0.0.5", "fd00::5", "192.168.7.5"}));
  EXPECT_EQ(chosen("=ib0"), (Texts{"192.168.7.5"}));
  EXPECT_EQ(chosen("^docker,lo"), (Texts{"10.0.0.5", "fd00::5", "192.168.7.5"}));
  EXPECT_EQ(chosen("^=eth0"), (Texts{"192.168.7.5", "172.17.0.1", "127.0.0.1", "::1"}));
}

TEST(Address, SaysWhichInterfacesThereAreWhenNoneIsChosen) {
  try {
    candidates(kHost, InterfaceFilter::parse("=eth7"));
    FAIL();
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.code(), ErrorCode::kMisuse);
    EXPECT_EQ(
        std::string(exception.what()),
        "HCCL_LIKE_SOCKET_IFNAME==eth7 leaves no network interface with an address; there are: "
        "lo,docker0,veth12ab,eth0,ib0");
  }
}

TEST(Address, AHostWithLoopbackOnlyPublishesIt) {
  EXPECT_EQ(texts(candidates({on("lo", "127.0.0.1", 8)}, {})), (Texts{"127.0.0.1"}));
}

TEST(Address, TriesTheCommonSubnetFirst) {
  const Texts published{"10.9.0.1", "172.17.0.1", "192.168.200.9", "fd00::9", "127.0.0.1"};
  EXPECT_EQ(texts(order_for_connecting(published, kHost, false)),
            (Texts{"192.168.200.9", "fd00::9", "10.9.0.1", "172.17.0.1"}));
}

TEST(Address, TriesLoopbackOnlyOnTheSameHostAndFirst) {
  EXPECT_EQ(texts(order_for_connecting({"127.0.0.1", "::1", "10.0.0.5"}, kHost, true)),
            (Texts{"127.0.0.1", "::1", "10.0.0.5"}));
  EXPECT_EQ(texts(order_for_connecting({"127.0.0.1", "::1", "10.0.0.5"}, kHost, false)),
            (Texts{"10.0.0.5"}));
}

TEST(Address, LeavesOutWhatIsNoAddressAndWhatComesTwice) {
  EXPECT_EQ(
      texts(order_for_connecting({"evil.example", "10.0.0.7", "10.0.0.7", "", "1"}, kHost, false)),
      (Texts{"10.0.0.7"}));
}

TEST(Address, TakesOtherLibrariesSettingsOnlyIfOursIsUnset) {
  const auto ours = InterfaceFilter::parse("ib");
  EXPECT_EQ(effective_filter(ours, "eth0", "eth1"), ours);
  EXPECT_EQ(effective_filter({}, "eth0", "^docker"), InterfaceFilter::parse("=eth0"));
  EXPECT_EQ(effective_filter({}, "^docker", nullptr), InterfaceFilter::parse("^docker"));
  EXPECT_EQ(effective_filter({}, "", "^docker,lo"), InterfaceFilter::parse("^docker,lo"));
  EXPECT_EQ(effective_filter({}, nullptr, nullptr), InterfaceFilter{});
}

TEST(Address, FindsThisHostsOwn) {
  bool loopback = false;
  for (const auto& one : system_addresses()) {
    loopback |= one.address.is_loopback();
    EXPECT_EQ(interface_of(one.address, {one}), one.interface);
  }
  EXPECT_TRUE(loopback);
}

}  // namespace
}  // namespace hccl_like
