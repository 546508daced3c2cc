// Names of exported memory: one for each allocation, never another's, and gone when the allocation
// is.
#include "transport/same_host/exports.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "device/host/host_api.h"
#include "device/host/host_ipc.h"
#include "device/host/shared_memory.h"
#include "device/testing/fake_device.h"

namespace hccl_like {
namespace {

class ExportsTest : public ::testing::Test {
 protected:
  // All but this one is made from the same few numbers.
  static hcd_ipc_handle file(int64_t descriptor, uint64_t inode, uint64_t bytes) {
    return handle_of(
        {.process = 77, .descriptor = descriptor, .device = 25, .inode = inode, .bytes = bytes});
  }
  uint64_t name(const hcd_ipc_handle& handle) { return exports_->name(fake_, 0, handle); }
  bool lives(uint64_t name) const { return Exports::holds(*words_, name); }

  // Tells nothing of what was freed.
  Device fake_{[] {
    hcd_api api = fake_device::api();
    api.ipc_export = [](int, hcd_ref, size_t, hcd_ipc_handle*, uint64_t*) {
      return int{HCD_UNSUPPORTED};
    };
    api.ipc_open = [](int, const hcd_ipc_handle*, void**, size_t*) { return int{HCD_UNSUPPORTED}; };
    api.ipc_close = [](int, void*) { return int{HCD_OK}; };
    return api;
  }()};
  Device host_{host_api()};
  std::unique_ptr<Exports::Words> words_ = std::make_unique<Exports::Words>();
  std::unique_ptr<Exports> exports_ = std::make_unique<Exports>(*words_);
};

TEST_F(ExportsTest, AnAllocationHasOneName) {
  const uint64_t first = name(file(13, 1000, 4'000'000));
  EXPECT_NE(first, 0u);
  EXPECT_TRUE(lives(first));
  EXPECT_EQ(name(file(13, 1000, 4'000'000)), first);
  EXPECT_NE(exports_->name(fake_, 1, file(13, 1000, 4'000'000)), first) << "of another device";
  EXPECT_NE(exports_->name(host_, 0, file(13, 1000, 4'000'000)), first) << "of another kind";
  EXPECT_EQ(exports_->size(), 3u);
}

// A digest once took these two for one: a peer would have read the first file in place of the
// second.
TEST_F(ExportsTest, HandlesThatDifferInAFewNumbersHaveTheirOwnNames) {
  EXPECT_NE(name(file(13, 1000, 4'000'000)), name(file(11, 1006, 3'999'996)));
  std::set<uint64_t> names;
  for (size_t byte = 0; byte < sizeof(hcd_ipc_handle::bytes); ++byte) {
    hcd_ipc_handle handle{};
    handle.bytes[byte] = 1;
    names.insert(name(handle));
  }
  EXPECT_EQ(names.size(), sizeof(hcd_ipc_handle::bytes));
}

TEST_F(ExportsTest, MemoryThatWasFreedLosesItsName) {
  auto memory = std::make_unique<SharedMemory>(SharedMemory::create(4096));
  const SharedMemory other = SharedMemory::create(4096);
  const hcd_ipc_handle handle = shared_range(memory->data(), 1)->handle;
  const uint64_t freed = exports_->name(host_, 0, handle);
  const uint64_t kept = exports_->name(host_, 0, shared_range(other.data(), 1)->handle);
  exports_->look();
  EXPECT_TRUE(lives(freed) && lives(kept));
  memory.reset();
  exports_->look();
  EXPECT_FALSE(lives(freed));
  EXPECT_TRUE(lives(kept));
  EXPECT_EQ(exports_->size(), 1u);
  const uint64_t again = exports_->name(host_, 0, handle);
  EXPECT_NE(again, freed) << "a name is never given twice";
  EXPECT_FALSE(lives(freed));
}

TEST_F(ExportsTest, ANewNameComesAfterALook) {
  auto memory = std::make_unique<SharedMemory>(SharedMemory::create(4096));
  const uint64_t freed = exports_->name(host_, 0, shared_range(memory->data(), 1)->handle);
  memory.reset();
  name(file(1, 2, 3));
  EXPECT_FALSE(lives(freed));
}

TEST_F(ExportsTest, WhatACallerNamedLastIsKnownUntilANameIsLost) {
  auto memory = std::make_unique<SharedMemory>(SharedMemory::create(4096));
  const hcd_ipc_handle handle = shared_range(memory->data(), 1)->handle;
  Exports::Last last;
  const uint64_t first = exports_->name(host_, 0, handle, last);
  EXPECT_EQ(exports_->name(host_, 0, handle, last), first);
  EXPECT_NE(exports_->name(host_, 0, file(1, 2, 3), last), first);
  EXPECT_EQ(exports_->name(host_, 0, handle, last), first);
  memory.reset();
  exports_->look();
  EXPECT_NE(exports_->name(host_, 0, handle, last), first) << "it may be another allocation by now";
}

TEST_F(ExportsTest, OfTooManyTheOldestLosesItsName) {
  std::vector<uint64_t> names;
  for (uint32_t i = 0; i < Exports::kWords; ++i) names.push_back(name(file(i, 0, 0)));
  for (const uint64_t one : names) ASSERT_TRUE(lives(one));
  const uint64_t next = name(file(-1, 0, 0));
  EXPECT_TRUE(lives(next));
  EXPECT_FALSE(lives(names[0]));
  EXPECT_TRUE(lives(names[1]));
  EXPECT_EQ(name(file(1, 0, 0)), names[1]);
  EXPECT_EQ(exports_->size(), size_t{Exports::kWords});
}

TEST_F(ExportsTest, AListHasANameOfItsOwn) {
  const std::vector<uint64_t> one{name(file(1, 0, 0))}, two{one[0], name(file(2, 0, 0))},
      swapped{two[1], two[0]};
  EXPECT_EQ(exports_->name(one), one[0]);
  const uint64_t first = exports_->name(two), other = exports_->name(swapped);
  EXPECT_EQ((std::set<uint64_t>{one[0], two[1], first, other, 0}).size(), 5u);
  EXPECT_EQ(exports_->name(two), first);
  for (uint32_t i = 0; i < 200; ++i) exports_->name(std::vector<uint64_t>{one[0], i + 1});
  EXPECT_NE(exports_->name(two), first) << "it was forgotten, so it must not be mistaken";
}

TEST_F(ExportsTest, WhatAnotherOneNamedLastIsNamedAnew) {
  const hcd_ipc_handle handle = file(1, 2, 3);
  Exports::Last last;
  const uint64_t first = exports_->name(fake_, 0, handle, last);
  exports_ = std::make_unique<Exports>(*words_);
  EXPECT_NE(exports_->name(fake_, 0, handle, last), first) << "peers would take it for freed";
}

}  // namespace
}  // namespace hccl_like
