#include "core/memory/placement.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/base/fd.h"
#include "core/memory/mapping.h"

namespace hccl_like {
namespace {

class PlacementTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 64 << 10;
  static constexpr int kDefault = 0, kPreferred = 1;  // MPOL_DEFAULT, MPOL_PREFERRED

  ~PlacementTest() override { std::filesystem::remove(nodes); }
  void say(std::string_view online) { std::ofstream(nodes) << online << '\n'; }
  static Mapping shared(size_t bytes = kBytes) {
    return Mapping::map(-1, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
  }
  // The kernel's policy for an untouched page of `memory`; -1 if the kernel does not tell.
  static int policy_of(const Mapping& memory) {
    constexpr int kOfAddress = 2;  // MPOL_F_ADDR
    int policy = -1;
    return ::syscall(SYS_get_mempolicy, &policy, nullptr, 0, memory.data(), kOfAddress) == 0
               ? policy
               : -1;
  }
  static bool may_choose() {
    const Mapping memory = shared();
    unsigned long first = 1;
    return ::syscall(SYS_mbind, memory.data(), kBytes, kPreferred, &first, 64, 0) == 0;
  }
  static unsigned here() {
    unsigned core = 0, node = 0;
    EXPECT_EQ(::getcpu(&core, &node), 0);
    return node;
  }

  const std::string nodes = testing::TempDir() + "hccl_like_nodes" + std::to_string(::getpid());
};

TEST_F(PlacementTest, LeavesMemoryAsItIsWhereThereIsOneNode) {
  for (const char* list : {"0", "", "3"}) {
    say(list);
    const Mapping memory = shared();
    EXPECT_EQ(place_near_me(memory.span(), nodes.c_str()), std::nullopt) << list;
    EXPECT_NE(policy_of(memory), kPreferred);
  }
  EXPECT_EQ(place_near_me(shared().span(), "/nowhere"), std::nullopt);
}

TEST_F(PlacementTest, AsksForTheNodeOfTheCallerWhereThereAreSeveral) {
  if (!may_choose()) GTEST_SKIP() << "this system does not let programs choose: " << errno;
  for (const char* list : {"0-1", "0,2"}) {
    say(list);
    const Mapping memory = shared();
    EXPECT_EQ(policy_of(memory), kDefault);
    const unsigned before = here();
    const auto node = place_near_me(memory.span(), nodes.c_str());
    ASSERT_TRUE(node.has_value());
    EXPECT_TRUE(*node == before || *node == here()) << "this thread may have been moved between";
    EXPECT_EQ(policy_of(memory), kPreferred) << list;
  }
}

TEST_F(PlacementTest, WhatIsAskedForAFileHoldsForAllThatMapIt) {
  if (!may_choose()) GTEST_SKIP() << "this system does not let programs choose: " << errno;
  say("0-1");
  const Fd file(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kBytes), 0);
  {
    const Mapping mine = Mapping::map(file.get(), kBytes, PROT_READ | PROT_WRITE, MAP_SHARED);
    ASSERT_TRUE(place_near_me(mine.span(), nodes.c_str()).has_value());
  }
  const Mapping another = Mapping::map(file.get(), kBytes, PROT_READ | PROT_WRITE, MAP_SHARED);
  EXPECT_EQ(policy_of(another), kPreferred);
}

TEST_F(PlacementTest, AFileThatCannotBeMappedIsLeftAsItIs) {
  EXPECT_EQ(place_near_me(-1, kBytes), std::nullopt);
}

TEST_F(PlacementTest, HugePagesAreNeverForcedWhereThereIsNoRoomForOne) {
  const Mapping memory = shared(2 * kHugePage);
  const size_t front = -reinterpret_cast<uintptr_t>(memory.data()) % kHugePage;
  EXPECT_FALSE(use_huge_pages(memory.span().first(4096)));
  EXPECT_FALSE(use_huge_pages(memory.span().first(front + kHugePage - 1)));
  EXPECT_FALSE(use_huge_pages({}));
}

TEST_F(PlacementTest, MemoryIsTheSameInPagesOfAnySize) {
  const Mapping memory = shared(4 * kHugePage);
  for (size_t i = 0; i < memory.size(); i += 4096)
    memory.data()[i] = static_cast<std::byte>(i >> 12);
  const bool huge = use_huge_pages(memory.span());
  RecordProperty("huge", huge ? "yes" : "no");
  for (size_t i = 0; i < memory.size(); i += 4096)
    ASSERT_EQ(memory.data()[i], static_cast<std::byte>(i >> 12)) << i;
}

}  // namespace
}  // namespace hccl_like
