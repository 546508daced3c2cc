#include "collectives/topology/group_topology.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace hccl_like {
namespace {

std::vector<ProcessRecord> with_devices(std::initializer_list<std::string> devices) {
  std::vector<ProcessRecord> members;
  for (const std::string& device : devices) members.emplace_back().device = device;
  return members;
}

TEST(DeviceMix, IsWhatTheRecordsOfAllRanksSay) {
  const std::string any(kAnyDevice);
  EXPECT_EQ(device_mix_of(with_devices({"", ""})), DeviceMix::kAlike);
  EXPECT_EQ(device_mix_of(with_devices({"sim", "sim", "sim"})), DeviceMix::kAlike);
  EXPECT_EQ(device_mix_of(with_devices({"sim", "npux"})), DeviceMix::kDevices);
  EXPECT_EQ(device_mix_of(with_devices({"sim", "sim with a plugin"})), DeviceMix::kDevices);
  EXPECT_EQ(device_mix_of(with_devices({"sim", "sim", ""})), DeviceMix::kHost);
  EXPECT_EQ(device_mix_of(with_devices({"sim", any})), DeviceMix::kHost);
  EXPECT_EQ(device_mix_of(with_devices({any, any})), DeviceMix::kHost);
}

TEST(DeviceMix, MayBeUnseenWhereAllRanksHaveAccelerators) {
  EXPECT_FALSE(may_differ_unseen(with_devices({"", ""})));
  EXPECT_FALSE(may_differ_unseen(with_devices({"sim", ""})));
  EXPECT_TRUE(may_differ_unseen(with_devices({"sim", "sim"})));
}

}  // namespace
}  // namespace hccl_like
