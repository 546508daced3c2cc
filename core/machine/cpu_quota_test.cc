#include "core/machine/cpu_quota.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace hccl_like {
namespace {

namespace fs = std::filesystem;

class CpuQuotaTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root / "proc"); }
  void TearDown() override { fs::remove_all(root); }
  void file(const fs::path& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  std::optional<size_t> quota() const { return cpu_quota(root / "proc", root / "cgroup"); }

  const fs::path root = testing::TempDir() + "hccl_like_quota" + std::to_string(::getpid());
};

TEST_F(CpuQuotaTest, IsWhatTheGroupAllowsInWholeCores) {
  file("proc/cgroup", "0::/job\n");
  file("cgroup/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2u);
  file("cgroup/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 1u) << "half a core is one that must wait";
}

TEST_F(CpuQuotaTest, IsNothingWithoutALimit) {
  EXPECT_EQ(quota(), std::nullopt);
  file("proc/cgroup", "0::/job\n");
  EXPECT_EQ(quota(), std::nullopt);
  file("cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CpuQuotaTest, IsTheLeastOfAllGroupsAround) {
  file("proc/cgroup", "0::/pod/job\n");
  file("cgroup/pod/job/cpu.max", "max 100000\n");
  file("cgroup/pod/cpu.max", "800000 100000\n");
  file("cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4u);
}

TEST_F(CpuQuotaTest, UnderstandsTheFirstVersion) {
  file("proc/cgroup", "12:pids:/job\n4:cpu,cpuacct:/job\n0::/\n");
  file("cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
  file("cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3u);
  file("cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), std::nullopt);
}

}  // namespace
}  // namespace hccl_like
