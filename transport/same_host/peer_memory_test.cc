#include "transport/same_host/peer_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "device/testing/fake_device.h"

namespace hccl_like {
namespace {

constexpr size_t kOpened = 1001;  // what every handle opens

// A device whose handles are numbers, and open memory of which every byte is that number.
struct Counts {
  std::atomic<int> opened{0};
  std::atomic<int> closed{0};
} counts;

constexpr uint64_t kBroken = 999;

hcd_api exporting_api() {
  hcd_api api = fake_device::api();
  api.ipc_export = [](int, hcd_ref, size_t, hcd_ipc_handle*, uint64_t*) {
    return fake_device::fail(HCD_UNSUPPORTED, "not used here");
  };
  api.ipc_open = [](int, const hcd_ipc_handle* handle, void** host, size_t* bytes) {
    ++counts.opened;
    uint64_t number = 0;
    std::memcpy(&number, handle->bytes + 120, sizeof number);
    if (number == kBroken) return fake_device::fail(HCD_INVALID, "there is no such memory");
    auto* const memory = new std::byte[kOpened];
    std::memset(memory, static_cast<int>(number), kOpened);
    *host = memory;
    *bytes = kOpened;
    return int{HCD_OK};
  };
  api.ipc_close = [](int, void* host) {
    ++counts.closed;
    delete[] static_cast<std::byte*>(host);
    return int{HCD_OK};
  };
  api.ipc_lives = [](int, const hcd_ipc_handle*) { return int{HCD_OK}; };
  return api;
}

hcd_api untelling_api() {
  hcd_api api = exporting_api();
  api.ipc_lives = nullptr;
  return api;
}

class PeerMemoryTest : public ::testing::Test {
 protected:
  PeerMemoryTest() { counts.opened = counts.closed = 0; }

  // As the owner exports it, which names it by its number plus one and, as a rule, has it.
  ExportedRange range(uint64_t number, uint64_t offset = 0) {
    ExportedRange range{.offset = offset, .name = number + 1};
    std::memcpy(range.handle.bytes + 120, &number, sizeof number);
    word(number).store(range.name);
    return range;
  }
  void free(uint64_t number) { word(number).store(0); }
  PeerMemory::View open(uint64_t number) { return open(number, kOpened).value(); }
  Result<PeerMemory::View> open(uint64_t number, size_t bytes, uint64_t offset = 0) {
    return memory_->open(device_, 0, range(number, offset), bytes, &seen_);
  }
  std::atomic<uint64_t>& word(uint64_t number) {
    return notes_->exports[(number + 1) % Exports::kWords];
  }

  Device device_{exporting_api()};
  Commons owner_;
  CommonsNotes* const notes_ =
      reinterpret_cast<CommonsNotes*>(owner_.areas().data(0) + Commons::kNotesBegin);
  PeerCommons seen_{Fd(::dup(owner_.fd()))};
  std::unique_ptr<PeerMemory> memory_ = std::make_unique<PeerMemory>();
};

TEST_F(PeerMemoryTest, OpensAHandleOnce) {
  const auto first = open(7, 500, 3).value();
  const auto second = open(7, 500, 501).value();
  EXPECT_EQ(counts.opened, 1);
  EXPECT_EQ(first.data[0], std::byte{7});
  EXPECT_EQ(second.data - first.data, 498);
  EXPECT_EQ(first.mapping, second.mapping);
}

TEST_F(PeerMemoryTest, TellsNamesOwnersAndDevicesApart) {
  const auto one = open(1), two = open(2);
  EXPECT_EQ(one.data[kOpened - 1], std::byte{1});
  EXPECT_EQ(two.data[kOpened - 1], std::byte{2});
  memory_->open(device_, 1, range(1), kOpened, &seen_).value();
  EXPECT_EQ(counts.opened, 3);
  Commons stranger;
  const PeerCommons other(Fd(::dup(stranger.fd())));
  memory_->open(device_, 0, range(1), kOpened, &other).value();
  EXPECT_EQ(counts.opened, 4);
  const PeerCommons same(Fd(::dup(owner_.fd())));
  memory_->open(device_, 0, range(2), kOpened, &same).value();
  EXPECT_EQ(counts.opened, 4) << "the same owner, seen by another link";
}

TEST_F(PeerMemoryTest, ClosesWhatItsOwnerHasFreed) {
  open(1), open(2);
  free(1);
  EXPECT_EQ(counts.closed, 0);
  memory_->close_freed();
  EXPECT_EQ(counts.closed, 1);
  EXPECT_EQ(memory_->stats().bytes, kOpened);
  open(2);
  EXPECT_EQ(counts.opened, 2);
}

TEST_F(PeerMemoryTest, WhateverIsOpenedNextClosesWhatWasFreed) {
  for (uint64_t number = 0; number < 900; ++number) {
    open(number);
    EXPECT_LE(memory_->stats().mappings, 1u);
    free(number);
  }
  EXPECT_EQ(counts.opened, 900);
  EXPECT_EQ(counts.closed, 899);
}

TEST_F(PeerMemoryTest, ClosesWhatHasLongBeenOutOfUseOfADeviceThatDoesNotTellWhatWasFreed) {
  const Device untelling{untelling_api()};
  const auto open_untold = [&](uint64_t number) {
    return memory_->open(untelling, 0, range(number), kOpened, &seen_).value();
  };
  open(1);
  const auto held = open_untold(2);
  open_untold(3), open_untold(4);
  constexpr uint64_t kLooks = PeerMemory::kUnusedUntold / PeerMemory::kBetweenLooks;
  for (uint64_t look = 0; look < kLooks; ++look) {
    EXPECT_EQ(counts.closed, 0);
    open_untold(4);
    memory_->close_freed();
  }
  EXPECT_EQ(counts.closed, 1) << "the third alone; the first would be told of, the second is held";
  EXPECT_EQ(memory_->stats().mappings, 3u);
}

TEST_F(PeerMemoryTest, ClosesWhatAnOwnerHadThatHasLeft) {
  open(1);
  owner_.leave();
  memory_->close_freed();
  EXPECT_EQ(counts.closed, 1);
}

TEST_F(PeerMemoryTest, WhatWasFreedStaysWhileSomebodyHoldsIt) {
  const auto view = open(1);
  free(1);
  memory_->close_freed();
  EXPECT_EQ(counts.closed, 0);
  EXPECT_EQ(view.data[kOpened - 1], std::byte{1});
}

TEST_F(PeerMemoryTest, MemoryWithoutANameIsMappedForOneCaller) {
  ExportedRange nameless = range(1);
  nameless.name = 0;
  memory_->open(device_, 0, nameless, kOpened, &seen_).value();
  EXPECT_EQ(counts.closed, 1);
  memory_->open(device_, 0, range(1), kOpened, nullptr).value();
  EXPECT_EQ(counts.closed, 2);
  EXPECT_EQ(memory_->stats().mappings, 0u);
  EXPECT_EQ(memory_->open(device_, 0, nameless, kOpened + 1, &seen_).error().code,
            ErrorCode::kMismatch);
}

TEST_F(PeerMemoryTest, KeepsNoMoreBytesThanItMay) {
  memory_ = std::make_unique<PeerMemory>(3 * kOpened);
  for (uint64_t number = 0; number < 3; ++number) open(number);
  EXPECT_EQ(counts.closed, 0);
  const auto held = open(0);
  const std::weak_ptr<const PeerMapping> second = open(1).mapping;
  if (const auto lent = second.lock()) memory_->use(*lent);
  open(3);
  EXPECT_EQ(counts.closed, 1);
  EXPECT_EQ(memory_->stats().bytes, 3 * kOpened);
  EXPECT_FALSE(second.expired()) << "2 was used least recently";
  open(4), open(5);
  EXPECT_EQ(held.data[0], std::byte{0});
  EXPECT_EQ(counts.closed, 3);
}

TEST_F(PeerMemoryTest, RefusesWhatLiesOutside) {
  EXPECT_TRUE(open(1, 0, kOpened).ok());
  EXPECT_TRUE(open(1, kOpened - 1, 1).ok());
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  for (const auto& [offset, bytes] : std::vector<std::pair<uint64_t, size_t>>{
           {0, kOpened + 1}, {1, kOpened}, {kOpened + 1, 0}, {kHuge, 1}, {1, kHuge}, {kHuge, 2}}) {
    const auto view = open(1, bytes, offset);
    ASSERT_FALSE(view.ok()) << offset << " + " << bytes;
    EXPECT_EQ(view.error().code, ErrorCode::kMismatch);
  }
}

TEST_F(PeerMemoryTest, RemembersAFailure) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto view = open(kBroken, 1);
    ASSERT_FALSE(view.ok());
    EXPECT_NE(view.error().message.find("there is no such memory"), std::string::npos);
  }
  EXPECT_EQ(counts.opened, 1);
  EXPECT_TRUE(open(1, 1).ok());
}

TEST_F(PeerMemoryTest, ClosesTheLeastRecentlyUsed) {
  for (uint64_t number = 0; number < PeerMemory::kKept; ++number) open(number);
  open(0);
  EXPECT_EQ(counts.closed, 0);
  open(PeerMemory::kKept);
  EXPECT_EQ(counts.closed, 1);
  open(0);
  EXPECT_EQ(counts.opened, static_cast<int>(PeerMemory::kKept) + 1) << "0 was used later than 1";
  open(1);
  EXPECT_EQ(counts.opened, static_cast<int>(PeerMemory::kKept) + 2);
}

TEST_F(PeerMemoryTest, ClosesNothingThatIsHeld) {
  std::vector<PeerMemory::View> held;
  for (uint64_t number = 0; number <= PeerMemory::kKept; ++number) held.push_back(open(number));
  EXPECT_EQ(counts.closed, 0);
  for (const auto& view : held) EXPECT_EQ(view.data[0], view.data[kOpened - 1]);
  held.clear();
  open(2 * PeerMemory::kKept);
  EXPECT_EQ(counts.closed, 2) << "back to the limit";
}

TEST_F(PeerMemoryTest, AViewOutlivesTheTable) {
  const auto view = open(5);
  memory_.reset();
  EXPECT_EQ(counts.closed, 0);
  EXPECT_EQ(view.data[0], std::byte{5});
}

TEST_F(PeerMemoryTest, ServesSeveralThreads) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        const uint64_t number = (i * 7 + t) % (PeerMemory::kKept + 36);
        if (open(number).data[0] != std::byte(number)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  memory_.reset();
  EXPECT_EQ(counts.opened, counts.closed);
}

}  // namespace
}  // namespace hccl_like
