#include "transport/bootstrap/host.h"

#include <gtest/gtest.h>

namespace hccl_like {
namespace {

TEST(Host, ContainersOfOneKernelAreDifferentHostsOfOneMachine) {
  EXPECT_EQ(machine_of("4f1c/4026531840/4026531837"), machine_of("4f1c/4026532999/4026531837"));
  EXPECT_NE(machine_of("4f1c/4026531840/4026531837"), machine_of("77aa/4026531840/4026531837"));
  EXPECT_EQ(machine_of("4f1c"), "4f1c");
  const std::string here = host_id();
  EXPECT_FALSE(machine_of(here).empty());
  EXPECT_LT(machine_of(here).size(), here.size());
}

TEST(HostId, IsTheSameForTheSameHost) {
  EXPECT_EQ(host_id(), host_id());
  EXPECT_FALSE(host_name().empty());
}

}  // namespace
}  // namespace hccl_like
