#include "core/machine/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace hccl_like {
namespace {

// Two sockets with a memory node each. On the first, eth0, and behind a switch ib0 and an
// accelerator; on the second, ib1.
constexpr const char* kTwoSockets = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x3"
    complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
  <object type="Package" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1"
    complete_nodeset="0x1" gp_index="2">
   <object type="NUMANode" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1"
    complete_nodeset="0x1" gp_index="3" local_memory="1024"/>
   <object type="Core" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1"
    gp_index="4">
    <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1"
    gp_index="5"/>
   </object>
   <object type="Bridge" gp_index="6" bridge_type="0-1" depth="0" bridge_pci="0000:[00-0f]">
    <object type="PCIDev" gp_index="7" pci_busid="0000:01:00.0" pci_type="0200 [8086:1521] [8086:0001] 01"
    pci_link_speed="1.0">
     <object type="OSDev" gp_index="8" name="eth0" osdev_type="2"/>
    </object>
    <object type="Bridge" gp_index="9" bridge_type="1-1" depth="1" bridge_pci="0000:[02-04]"
    pci_busid="0000:00:01.0" pci_type="0604 [8086:1901] [8086:0001] 01" pci_link_speed="1.0">
     <object type="PCIDev" gp_index="10" pci_busid="0000:03:00.0" pci_type="0207 [15b3:1017] [15b3:0001]
    00" pci_link_speed="1.0">
      <object type="OSDev" gp_index="11" name="ib0" osdev_type="2"/>
     </object>
     <object type="PCIDev" gp_index="12" pci_busid="0000:04:00.0" pci_type="0302 [10de:1db1] [10de:0001]
    a1" pci_link_speed="1.0"/>
    </object>
   </object>
  </object>
  <object type="Package" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2"
    complete_nodeset="0x2" gp_index="13">
   <object type="NUMANode" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2"
    complete_nodeset="0x2" gp_index="14" local_memory="1024"/>
   <object type="Core" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2"
    gp_index="15">
    <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x2" complete_nodeset="0x2"
    gp_index="16"/>
   </object>
   <object type="Bridge" gp_index="17" bridge_type="0-1" depth="0" bridge_pci="0000:[80-8f]">
    <object type="PCIDev" gp_index="18" pci_busid="0000:81:00.0" pci_type="0207 [15b3:1017] [15b3:0001] 00"
    pci_link_speed="1.0">
     <object type="OSDev" gp_index="19" name="ib1" osdev_type="2"/>
    </object>
   </object>
  </object>
 </object>
</topology>
)";

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Machine, HasAtLeastAThread) {
  const Look look = look_at_machine();
  EXPECT_GE(look.machine.threads, 1);
  if (look.missing.empty()) {
    EXPECT_GE(look.machine.sockets, 1);
  }
}

TEST(Machine, SaysHowFarDevicesAreFromInterfaces) {
  if (!look_at_machine().missing.empty()) GTEST_SKIP() << "libhwloc15 is not installed";
  const std::string path = ::testing::TempDir() + "hccl_like_two_sockets.xml";
  std::ofstream(path) << kTwoSockets;
  const Environment xml("HWLOC_XMLFILE", path);
  const std::vector<std::string> devices{"0000:04:00.0", "0000:99:00.0", ""};
  const Look look = look_at_machine(devices);
  EXPECT_EQ(look.missing, "");
  EXPECT_EQ(look.machine.sockets, 2);
  EXPECT_EQ(look.machine.nodes, 2);
  EXPECT_EQ(look.machine.cores, 2);
  ASSERT_EQ(look.machine.nics.size(), 3u);
  EXPECT_EQ(look.machine.nics[1].name, "ib0");
  EXPECT_EQ(look.machine.nics[1].pci, "0000:03:00.0");
  EXPECT_EQ(look.machine.nics[1].node, 0);
  EXPECT_EQ(look.machine.nics[2].node, 1);
  EXPECT_EQ(look.distances[0], (std::vector<std::string>{"node", "bridge", "host"}));
  EXPECT_EQ(look.distances[1], (std::vector<std::string>{"?", "?", "?"}));
  EXPECT_EQ(look.distances[2], (std::vector<std::string>{"?", "?", "?"}));
}

TEST(Machine, LaunchersSayWhoIsFirst) {
  EXPECT_FALSE(first_process_here());
  {
    const Environment first("LOCAL_RANK", "0");
    EXPECT_TRUE(first_process_here());
    EXPECT_EQ(local_rank(), 0);
  }
  const Environment second("SLURM_LOCALID", "1");
  EXPECT_FALSE(first_process_here());
  EXPECT_EQ(local_rank(), 1);
  const Environment nonsense("LOCAL_RANK", "1x");
  EXPECT_EQ(local_rank(), std::nullopt);
}

}  // namespace
}  // namespace hccl_like
