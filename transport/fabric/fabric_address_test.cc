#include "transport/fabric/fabric_address.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace hccl_like {
namespace {

using Ends = std::vector<FabricAddress::End>;
using Pairs = std::vector<FabricPair>;

FabricAddress on(std::vector<std::string> networks) {
  FabricAddress address;
  for (const std::string& one : networks) address.ends.push_back({one, "name of " + one});
  return address;
}

TEST(FabricAddress, IsReadAsItWasWritten) {
  const Ends ends{{"10.0.0.0/8", std::string("\0\2\x1f\0bytes", 9)}, {"", ""}};
  for (const auto& [reads, devices] : {std::pair(false, false), {true, false}, {true, true}}) {
    const bool mends = reads == devices;
    const FabricAddress address{.provider = "udp;ofi_rxd",
                                .reads_memory = reads,
                                .takes_devices = devices,
                                .mends = mends,
                                .ends = ends};
    const auto read = FabricAddress::parse(address.pack());
    ASSERT_TRUE(read);
    EXPECT_EQ(read->provider, "udp;ofi_rxd");
    EXPECT_EQ(read->reads_memory, reads);
    EXPECT_EQ(read->takes_devices, devices);
    EXPECT_EQ(read->mends, mends);
    EXPECT_EQ(read->ends, ends);
  }
}

TEST(FabricAddress, APartOfOneIsNone) {
  const std::string text = FabricAddress{
      .provider = "tcp",
      .reads_memory = true,
      .takes_devices = false,
      .mends = true,
      .ends = {
          {"network", "name"}}}.pack();
  for (size_t bytes = 0; bytes < text.size(); ++bytes)
    EXPECT_FALSE(FabricAddress::parse(text.substr(0, bytes))) << bytes;
  EXPECT_FALSE(FabricAddress::parse("x" + text.substr(1)));
  EXPECT_FALSE(FabricAddress::parse("rx" + text.substr(2)));
  EXPECT_FALSE(FabricAddress::parse(text + "x"));
}

TEST(FabricAddress, EndsOnOneNetworkArePairedAndBothEndsFindTheSame) {
  const auto own = on({"a", "b", "c", "c", "d"}), far = on({"b", "c", "d", "c"});
  EXPECT_EQ(pair_ends(own, far), (Pairs{{0, 0}, {2, 1}, {3, 3}, {4, 2}}));
  EXPECT_EQ(pair_ends(far, own), (Pairs{{0, 0}, {1, 2}, {2, 4}, {3, 3}}));
  EXPECT_EQ(pair_ends(on({"a", "b"}), on({"a"})), (Pairs{{0, 0}}));
}

}  // namespace
}  // namespace hccl_like
